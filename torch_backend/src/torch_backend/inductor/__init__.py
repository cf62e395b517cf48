"""torch.compile's inductor. If the host can access a device's memory, inductor's C++ kernels run on the tensors in
place. A device that compiles source gets kernels in the portable dialect. On other devices the graph's operators run
one by one.

torch calls `_inductor_backend_init` of the device module when inductor starts (2.13 and 2.14 read `Scheduling`). This
package is imported only then, because importing inductor takes seconds.
"""

from __future__ import annotations

from ._codegen import PythonWrapperCodegen
from ._package import CppWrapperCodegen
from ..dynamo.interface import Interface
from ._registration import register
from ._ways import Scheduling

__all__ = ["CppWrapperCodegen", "Interface", "PythonWrapperCodegen", "Scheduling", "register"]

register()
