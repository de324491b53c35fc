"""Memory that is used again and again stays with the process."""

import ctypes


def keep_memory() -> bool:
    """Let glibc keep what a layer leaves free for the next one, and say whether it will.

    By default it gives every large block back to the system and takes it again page by page. Where
    pages are dear, as on virtual machines, that is most of the time of a convolutional network on
    the CPU: lite0 runs three times as fast without. It holds for the whole process, so commands and
    the functions of `cenote.api` ask for it and the layers do not.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(-4, 0)) and bool(mallopt(-1, 2**31 - 1))  # M_MMAP_MAX, M_TRIM_THRESHOLD
