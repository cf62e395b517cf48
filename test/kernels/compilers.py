"""The compilers that compile_kernels.py uses. Each class has missing(), which returns what is not installed, and
compile(name, text), which returns the error or None. Processes of a pool get copies of the object: a library is opened
once in each, at its first use."""
import ctypes
import ctypes.util
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

MOST_ARGUMENT_BYTES = 1024  # what OpenCL guarantees


def tool(name, versions=range(20, 13, -1)):
    """The program of that name, with or without a version suffix; None if there is none."""
    return next(filter(None, (shutil.which(each) for each in (*(f"{name}-{version}" for version in versions), name))), None)


class Clang:
    """OpenCL C 1.2."""

    double, few, simt = True, False, True  # few: a smaller sample
    flags = ()

    def __init__(self, folder):
        self.folder = Path(folder)

    def missing(self):
        return None if tool("clang") else "no clang (apt-get install clang-14)"

    def run(self, name, text, *flags):
        command = [tool("clang"), "-x", "cl", "-cl-std=CL1.2", "-target", "spir64-unknown-unknown", "-Xclang", "-finclude-default-header",
                   "-Wno-everything", *self.flags, *flags, "-"]
        return subprocess.run(command, input=text, capture_output=True, text=True)

    def compile(self, name, text):
        result = self.run(name, text, "-emit-llvm", "-S", "-O0", "-o", "-")
        if result.returncode:
            return result.stderr[:1000]
        head = re.search(rf"^define .*spir_kernel void @{name}\((.*)\)", result.stdout, re.MULTILINE)
        if not head:
            return "no kernel of that name"
        size = argument_bytes(head[1], result.stdout)
        return f"{size} bytes of arguments" if size > MOST_ARGUMENT_BYTES else None


class WithoutDouble(Clang):
    double, few = False, True
    flags = ("-Xclang", "-cl-ext=-cl_khr_fp64,-__opencl_c_fp64")


class WithOffsets(Clang):
    few = True
    flags = ("-DPK_POINTER_OFFSETS",)


class ForCpus(Clang):
    """The form for devices with few wide cores."""

    few, simt = True, False
    flags = ("-DPK_CPU_VECTOR",)


def argument_bytes(parameters, module):
    """The bytes of a kernel's arguments, each at a multiple of its size, from the parameters of its LLVM function."""
    def layout(text):  # (size, alignment)
        if text.endswith("*"):
            return 8, 8
        array = re.fullmatch(r"\[(\d+) x (.*)\]", text)
        if array:
            size, alignment = layout(array[2])
            return int(array[1]) * size, alignment
        if text.startswith("%"):
            text = re.search(rf"^{re.escape(text)} = type (.*)$", module, re.MULTILINE)[1]
        if text.startswith("{"):
            return pack(members(text[1:-1]))
        size = {"float": 4, "double": 8, "half": 2}.get(text) or int(text[1:]) // 8
        return size, size

    def pack(types):
        at, largest = 0, 1
        for size, alignment in map(layout, types):
            at, largest = -(-at // alignment) * alignment + size, max(largest, alignment)
        return -(-at // largest) * largest, largest

    types = []
    for parameter in members(parameters):
        by_value = re.search(r"byval\((.*?)\)", parameter)
        types.append(by_value[1] if by_value else "i8*" if "*" in parameter else parameter.split(" ")[0])
    return pack(types)[0]


def members(text):
    """The parts between the commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[{(") - (character in "]})")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


class SpirV(Clang):
    """OpenCL C to SPIR-V, without optimization: the device's compiler optimizes."""

    few = True

    def missing(self):
        if not tool("llvm-spirv"):
            return "no llvm-spirv (apt-get install llvm-spirv-14)"
        return super().missing() or (None if tool("spirv-val") else "no spirv-val (apt-get install spirv-tools)")

    def compile(self, name, text):
        bitcode, module = self.folder / f"{name}.bc", self.folder / f"{name}.spv"
        result = self.run(name, text, "-emit-llvm", "-c", "-Xclang", "-disable-llvm-passes", "-o", str(bitcode))
        for command in ([tool("llvm-spirv"), "--spirv-max-version=1.2", str(bitcode), "-o", str(module)],
                        [tool("spirv-val"), "--target-env", "opencl2.2", str(module)]):
            if not result.returncode:
                result = subprocess.run(command, capture_output=True, text=True)
        problem = (result.stderr + result.stdout)[:1000] if result.returncode else None
        if not problem and name.encode() not in module.read_bytes():
            problem = "no kernel of that name"
        for path in (bitcode, module):
            path.unlink(missing_ok=True)
        return problem


OPENED = {}  # the compilers whose library this process has opened, by class


def opened(compiler):
    if type(compiler) not in OPENED:
        compiler.open()
        OPENED[type(compiler)] = compiler
    return OPENED[type(compiler)]


class OpenCL:
    """The compiler of a device, through the ICD loader."""

    double, few, simt = True, True, True
    BUILD_LOG = 0x1183  # CL_PROGRAM_BUILD_LOG
    ALL_DEVICES = 0xFFFFFFFF

    def __init__(self, folder):
        self.library = None

    def open(self):
        """Opens the first device; raises OSError."""
        self.library = ctypes.CDLL("libOpenCL.so.1")
        for function in ("clCreateContext", "clCreateProgramWithSource", "clCreateKernel"):
            getattr(self.library, function).restype = ctypes.c_void_p
        platform, count, self.device, error = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_void_p(), ctypes.c_int()
        if self.library.clGetPlatformIDs(1, ctypes.byref(platform), ctypes.byref(count)) or not count.value:
            raise OSError("the OpenCL loader finds no platform (apt-get install pocl-opencl-icd)")
        if self.library.clGetDeviceIDs(platform, ctypes.c_uint64(self.ALL_DEVICES), 1, ctypes.byref(self.device), None):
            raise OSError("the first OpenCL platform has no device")
        self.context = ctypes.c_void_p(self.library.clCreateContext(None, 1, ctypes.byref(self.device), None, None, ctypes.byref(error)))
        if error.value:
            raise OSError(f"clCreateContext: error {error.value}")

    def missing(self):
        # In a separate process: a driver's threads do not survive the fork of a pool.
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import compilers; compilers.OpenCL(None).open()"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        return result.stderr.strip().splitlines()[-1] if result.returncode else None

    def compile(self, name, text):
        return opened(self).build(name, text.encode())

    def build(self, name, text):
        cl, error, source, size = self.library, ctypes.c_int(), ctypes.c_char_p(text), ctypes.c_size_t(len(text))
        program = ctypes.c_void_p(cl.clCreateProgramWithSource(self.context, 1, ctypes.byref(source), ctypes.byref(size), ctypes.byref(error)))
        if error.value:
            return f"clCreateProgramWithSource: error {error.value}"
        try:
            if failed := cl.clBuildProgram(program, 1, ctypes.byref(self.device), b"", None, None):
                log = ctypes.create_string_buffer(1 << 16)
                cl.clGetProgramBuildInfo(program, self.device, self.BUILD_LOG, ctypes.c_size_t(1 << 16), log, None)
                return f"clBuildProgram: error {failed}: {log.value.decode()[:1000]}"
            kernel = ctypes.c_void_p(cl.clCreateKernel(program, name.encode(), ctypes.byref(error)))
            if error.value:
                return f"clCreateKernel: error {error.value}"
            cl.clReleaseKernel(kernel)
        finally:
            cl.clReleaseProgram(program)
        return None


class Nvrtc:
    """CUDA C to PTX and to code of devices of three compute capabilities, one of them if `every` is false."""

    double, few, simt, every = True, False, True, False
    architectures = (75, 90, 100)

    def __init__(self, folder):
        self.library = None

    def open(self):
        if "HAL_CUDA_NVRTC" in os.environ:
            found = list(Path(os.environ["HAL_CUDA_NVRTC"]).parent.glob("libnvrtc*.so*"))
        else:
            import nvidia

            found = [path for folder in nvidia.__path__ for path in sorted(Path(folder).glob("c*/lib/libnvrtc*.so*"))]
        found = [path for path in found if ".alt." not in path.name]
        # the builtins first: the compiler looks for them by name
        for path in sorted(found, key=lambda path: "builtins" not in path.name):
            self.library = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        if not self.library:
            raise ImportError("no libnvrtc in the packages of nvidia, and HAL_CUDA_NVRTC names none")

    def missing(self):
        try:
            self.open()
        except (ImportError, OSError) as error:
            return f"no NVRTC (pip install nvidia-cuda-nvrtc): {error}"
        finally:
            self.library = None
        return None

    def compile(self, name, text):
        chosen = self.architectures if self.every else self.architectures[zlib.crc32(name.encode()) % len(self.architectures) :][:1]
        for architecture in chosen:
            problem, _, _ = opened(self).build(name, text, architecture)
            if problem:
                return f"sm_{architecture}: {problem}"
        return None

    def build(self, name, text, architecture):
        """Returns the error or None, the registers of a thread, and the spilled bytes."""
        options = [f"--gpu-architecture=sm_{architecture}", "--disable-warnings", "--ptxas-options=-v"]
        if "#define PK_CONTRACT 1" not in text:
            options.append("--fmad=false")
        program, words = ctypes.c_void_p(), (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        self.library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        failed = self.library.nvrtcCompileProgram(program, len(options), words)
        log, ptx = (self.take(program, kind) if not failed or kind == "ProgramLog" else "" for kind in ("ProgramLog", "PTX"))
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        if failed:
            return log[:1000], 0, 0
        registers, spilled = re.search(r"Used (\d+) registers", log), re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
        if not registers:
            return f"the compiler does not report the registers: {log[:200]}", 0, 0
        return self.fault(name, text, ptx), int(registers[1]), sum(map(int, spilled))

    def take(self, program, kind):
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        answer = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{kind}")(program, answer)
        return answer.value.decode()

    @staticmethod
    def fault(name, text, ptx):
        if f".entry {name}(" not in ptx:
            return "no kernel of that name"
        if name.startswith("uniform_") and "fma.rn" in ptx:
            return "a product is fused with a sum: numbers would differ from other devices'"
        in_runs = re.search(r"^ *PK_(RUN_ITEMS|PUT_ALONG|PUT_ROW|ROW_SEGMENT)\b", text, re.MULTILINE) and "#define PK_PAIRED 1" not in text
        if in_runs and not re.search(r"(ld|st)\.global\.v[24]", ptx):
            return "no run of elements is loaded or stored at once"
        return None


COMPILERS = {"opencl-c": Clang, "no-fp64": WithoutDouble, "offsets": WithOffsets, "cpu-vector": ForCpus, "spirv": SpirV, "pocl": OpenCL, "nvrtc": Nvrtc}
