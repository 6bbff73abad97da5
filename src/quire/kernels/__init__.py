"""Every attention kernel of this machine: does it keep documents apart, and how fast is it?

`kernels` lists them with the reason why one cannot run here, `check` tries each on a model, and
`report` holds the results, as JSON to attach to an issue. `quire verify-model --kernels` and
`examples/gpu_check.py` print them.
"""

from quire.kernels.check import CheckOptions, check_kernels
from quire.kernels.kernels import KERNELS, Kernel
from quire.kernels.report import KernelReport, KernelResult

__all__ = [
    "KERNELS",
    "CheckOptions",
    "Kernel",
    "KernelReport",
    "KernelResult",
    "check_kernels",
]
