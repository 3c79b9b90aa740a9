# Everything is done in .venv; a torch that you have is used where it is and never replaced. `make` alone lists the verbs.
#
# Variables: ARCH=gfx1032  NAME=folder  PARAMS="a.yaml b.yaml"  ONLY=01,03  REPORT_LANG=en|zh  STRICT=1  FRESH=1
#   PYTHON=/path/to/python3   instead of the active environment's Python, or python3
#   TORCH=cpu | any           cpu: torch for the CPU, although a card is there; any: whatever build pip brings
#   TORCH_INDEX=https://...   install torch from this index only

# The notebooks record variables that begin with TORCH, and a child has no use for any of these.
unexport ARCH NAME PARAMS ONLY REPORT_LANG STRICT FRESH PYTHON TORCH TORCH_INDEX FILE

ifeq ($(OS),Windows_NT)
  HOST := $(or $(PYTHON),python)
  VENV := .venv/Scripts/python.exe
else
  HOST := $(or $(PYTHON),python3)
  VENV := .venv/bin/python
endif

INSTALL = "$(HOST)" -m rocmlab.install --python "$(PYTHON)" --torch "$(TORCH)" --torch-index "$(TORCH_INDEX)"
REPORT = $(if $(ARCH),--arch "$(ARCH)") $(if $(NAME),--name "$(NAME)") $(if $(PARAMS),--params $(PARAMS)) \
  $(if $(ONLY),--only "$(ONLY)") $(if $(REPORT_LANG),--lang "$(REPORT_LANG)") $(if $(STRICT),--strict) \
  $(if $(FRESH),--fresh)

.DEFAULT_GOAL := help
.PHONY: help report check read model lab test lint strip clean set-up set-up-test

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

report: set-up ## run the notebooks and build the page, with all the set-up (ARCH=gfx1032 NAME= PARAMS= ONLY= ...)
	@$(VENV) -m rocmlab.cli report $(REPORT)

check: set-up ## the one-minute answer: card, driver, build, and one small launch
	@$(VENV) -m rocmlab.cli check $(if $(REPORT_LANG),--lang "$(REPORT_LANG)")

read: set-up ## say what a trace, a log, a snapshot or a run folder shows (FILE=path)
	@$(VENV) -m rocmlab.cli read "$(FILE)" $(if $(REPORT_LANG),--lang "$(REPORT_LANG)")

model: set-up ## fetch and prepare the bundled model
	@$(VENV) -m rocmlab.cli model

lab: set-up ## open the notebooks in JupyterLab
	@$(VENV) -m jupyterlab notebooks

test: lint ## set-up with the tools for tests, then lint and every test
	@$(VENV) -m pytest -n 2 --dist loadfile

lint: set-up-test ## ruff (check and format, notebooks too) and mypy
	@$(VENV) -m ruff check .
	@$(VENV) -m ruff format --check .
	@$(VENV) -m mypy

strip: set-up ## bring the notebooks into their committed form: no outputs, ids kept
	@$(VENV) -m rocmlab.strip notebooks

clean: ## remove caches and build leftovers; .venv and outputs stay
	@git clean -fdXq -- . ":!.venv" ":!outputs"

set-up:
	@$(INSTALL) notebooks

set-up-test:
	@$(INSTALL) notebooks test
