"""torch.compile's inductor on devices whose memory the host can touch: its C++ kernels run on the tensors in place.

torch asks the device module for `Scheduling` when inductor starts; only then is this package imported, since inductor costs
seconds to import.
"""

from __future__ import annotations

from ._codegen import PythonWrapperCodegen, Scheduling
from ._cpp_wrapper import CppWrapperCodegen
from ._interface import Interface
from ._registration import register

__all__ = ["CppWrapperCodegen", "Interface", "PythonWrapperCodegen", "Scheduling"]

register()
