"""torch.compile's inductor. Where the host can touch a device's memory, its C++ kernels run on the tensors in place; a device that compiles
source gets kernels in the portable dialect; on others the graph's operators run one by one.

torch asks the device module for `Scheduling` when inductor starts; only then is this package imported, since inductor costs
seconds to import.
"""

from __future__ import annotations

from ._codegen import PythonWrapperCodegen
from ._cpp_wrapper import CppWrapperCodegen
from ..dynamo.interface import Interface
from ._registration import register
from ._ways import Scheduling

__all__ = ["CppWrapperCodegen", "Interface", "PythonWrapperCodegen", "Scheduling"]

register()
