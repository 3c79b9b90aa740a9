"""How a child process ended, said in both languages: the words of isolate.py, which records keep in English. Pure."""

from __future__ import annotations

import re

# What isolate.py and device.py write: a pattern of the English words, and the same in Chinese.
CHINESE = (
    (r"still running after ([\d.e+]+) s, ended", r"\1 s 后仍在运行，已被终止"),
    (r"ended by (\S+), most often the out-of-memory killer", r"被 \1 终止，多半是系统因内存不足而终止"),
    (r"ended by Windows code (\w+)", r"以 Windows 代码 \1 结束"),
    (r"ended by (\S+( \(\w+\))?)", r"被 \1 终止"),
    (r"ended by (\S+)( seen through a shell)?: segmentation fault", r"被 \1 终止：段错误"),
    (
        r"ended by (\S+)( seen through a shell)?: abort, .*",
        r"被 \1 终止：主动中止，HIP 运行时和 rocBLAS 常这样结束进程",
    ),
    (r"ended by (\S+)( seen through a shell)?: arithmetic fault", r"被 \1 终止：算术错误"),
    (r"ended by (\S+)( seen through a shell)?: illegal instruction", r"被 \1 终止：非法指令"),
    (r"ended by (\S+)( seen through a shell)?: bus error", r"被 \1 终止：总线错误"),
    (r"exit code (-?\d+)", r"退出代码 \1"),
    (r"exit code (-?\d+), as after an ordinary exception", r"退出代码 \1，通常来自普通异常"),
    (r"access violation( \(\w+\))?", r"访问冲突\1"),
    (r"a DLL needed at start was not found( \(\w+\))?", r"缺少启动时需要的 DLL\1"),
    (r"a DLL lacks an expected entry point( \(\w+\))?", r"某个 DLL 缺少所需的入口点\1"),
    (r"a DLL failed to initialise( \(\w+\))?", r"某个 DLL 初始化失败\1"),
    (r"illegal instruction( \(\w+\))?", r"非法指令\1"),
    (r"integer division by zero( \(\w+\))?", r"整数除以零\1"),
    (r"stack overflow( \(\w+\))?", r"栈溢出\1"),
    (r"heap corruption( \(\w+\))?", r"堆损坏\1"),
    (r"stack buffer overrun or fail-fast abort( \(\w+\))?", r"栈缓冲区溢出或快速失败中止\1"),
    (r"not finished after ([\d.e+]+) s of its own", r"自身运行 \1 s 后仍未完成"),
    (r"no time was left to try it", r"没有剩余时间来尝试"),
    (r"wrong value, off by (\S+)", r"结果错误，偏差 \1"),
    (r"no reason given", r"未给出原因"),
    (r"no answer", r"没有回答"),
)


def both(said: str) -> dict[str, str]:
    """Return `{en, zh}`; what a program or a driver said itself stays in its own words."""
    for pattern, chinese in CHINESE:
        match = re.fullmatch(pattern, said)
        if match:
            return {"en": said, "zh": match.expand(chinese)}
    return {"en": said, "zh": said}
