"""Does this GPU work, why is it slow, and what would make it faster?

The package behind the notebooks. `rocmlab report` runs them; `rocmlab read FILE` judges one piece of evidence.
"""

__version__ = "0.1.0"

# Raised whenever a number changes its meaning: runs of different method versions are never compared or resumed.
METHOD_VERSION = 1
