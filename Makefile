# New users need two commands, `make demo` and `make test`; CONTRIBUTING.md describes the others.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3
# Another version of torch than that of requirements/torch.txt, such as TORCH=2.15.0: uses a separate environment and
# build.
DEFAULT_TORCH := $(shell sed -n 's/^torch==//p' requirements/torch.txt)
TORCH ?=
ifeq ($(TORCH),$(DEFAULT_TORCH))
override TORCH :=
endif
# Another Python than python3, such as PYTHON=python3.13: also uses a separate environment and build.
OTHER_PYTHON := $(filter-out python3,$(notdir $(PYTHON)))
ifneq ($(OTHER_PYTHON),)
ifeq ($(shell command -v $(PYTHON)),)
$(error missing interpreter '$(PYTHON)': install it with its headers and venv, or pass the path of one, as in PYTHON=/usr/bin/python3)
endif
endif
VENV ?= .venv$(OTHER_PYTHON:%=-%)$(TORCH:%=-torch-%)
# One of each supported minor version, for which `make wheel` builds.
TORCH_VERSIONS := 2.13.0 2.14.0 2.15.0
BUILD := build$(OTHER_PYTHON:%=/%)$(TORCH:%=/torch-%)
# At the depth of the default build folder: relative paths are the same, and ccache reuses the objects in C.
BUILD_SETTINGS := $(TORCH:%=--config-settings=build-dir=build/wheel$(OTHER_PYTHON:%=-%)-torch-%)
JOBS ?= $(shell nproc)
# The processor that the tests run as, if this one can intercept CPUID: avx512_bf16, avx512, avx2, epyc or base.
PROCESSOR ?=
AS_PROCESSOR = $(if $(PROCESSOR),LD_PRELOAD=$(CURDIR)/build/release/test/libhal_processor.so HAL_TEST_PROCESSOR=$(PROCESSOR))
VENV_PYTHON := $(VENV)/bin/python
STAMPS := $(BUILD)/stamps

# The C tests and the package are two build trees of the same C sources. With ccache the second reuses the objects of
# the first, if the compiler has the same name and paths are relative to the tree. Evaluated when a recipe runs, because
# `make` may just have installed ccache.
export CC CXX
export CMAKE_C_COMPILER_LAUNCHER = $(if $(shell command -v ccache),ccache)
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

# While building, `import torch` must not load the extension that is being replaced.
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
unexport PYTHONPATH

SOURCES := $(shell git ls-files -co --exclude-standard -- hal plugins csrc codegen cmake torch_backend CMakeLists.txt pyproject.toml 2>/dev/null)

.PHONY: demo test test-c test-python test-torch test-cuda packs wheel wheel-for-torch release test-wheel test-full test-intel-opencl test-integrations test-sanitizers fuzz bench docs docs-headers pictures install setup format check-format clean help

help:
	@echo "make demo             train a small network on the fake device, or that of TORCH_BACKEND, and on the CPU"
	@echo "make test             all fast tests: C (Criterion) and Python (pytest)"
	@echo "make test-full        make test, the Python tests on protected memory, the operator database in all dtypes and modes, all kernels by device compilers, all operators on OpenCL"
	@echo "make test-intel-opencl  the tests of OpenCL on Intel's runtime for CPUs, which it installs into build/intel-opencl (1.1 GB)"
	@echo "make test-cuda        the C tests of the cuda plugin and the operator database on NVIDIA's driver and GPUs"
	@echo "make test-integrations  the tests with accelerate, transformers, Lightning and others, which it installs"
	@echo "make test-torch VERSION=2.15.0  the Python tests with that torch, in an environment and a build of their own"
	@echo "make test PROCESSOR=avx2  the tests as on another processor: avx512_bf16, avx512, avx2, epyc (AVX2, AMD) or base"
	@echo "make wheel            one package for every supported torch, into dist/: a build and an environment for each"
	@echo "make wheel PYTHON=python3.13  for another CPython"
	@echo "make release          the wheel, and checks that this tree can be released (docs/releasing.md)"
	@echo "make wheel PACKS=1    with the packs of 'make packs' in it"
	@echo "make packs            the portable kernels as SPIR-V, compiled ahead for npu and vulkan, into $(PACK_FOLDER)/: many minutes of a processor"
	@echo "make test-sanitizers  the C tests under address, undefined-behaviour and thread sanitizers"
	@echo "make fuzz SECONDS=60  random inputs for readers of files and settings, plugins and programs, under sanitizers"
	@echo "make bench            the benchmarks, compared with CPU torch or a vendor's library in the same run"
	@echo "make docs             the documentation, into build/docs/html; every warning is an error"
	@echo "make install          build and install into $(VENV)"

# Tests print their output. The output of other commands goes to a file in LOGS, whose path is printed if the command
# fails.
LOGS := $(BUILD)/logs
PROGRESS := $(PYTHON) third_party/progress.py
logged = $(PROGRESS) --log $(LOGS)/$(1).log
PIP := $(VENV_PYTHON) -m pip --disable-pip-version-check
# Without compiling all of torch's Python files: the first import compiles those that it needs.
PIP_INSTALL := $(PIP) install --no-compile

# Environments in which torch_backend is installed with another version of torch: tests that are independent of torch
# run there, too.
empty :=
OTHER_STAMPS = $(filter-out $(STAMPS)/install,$(wildcard build/stamps/install build/torch-*/stamps/install))
OTHER_PYTHONS = $(subst $(empty) $(empty),:,$(patsubst build%/stamps/install,$(CURDIR)/.venv%/bin/python,$(subst /torch-,-torch-,$(OTHER_STAMPS))))

# One worker per job. A file's tests run in one worker, because its fixtures are expensive. Each worker has two threads,
# so that the multithreaded paths of torch's CPU kernels are tested; idle threads sleep, because the cores are shared.
PYTEST = $(AS_PROCESSOR) TORCH_BACKEND_TEST_PYTHONS=$(OTHER_PYTHONS) OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive $(PROGRESS) "Python tests" \
  $(VENV)/bin/pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder test/python

# The packages of each purpose (requirements/*.txt, the second column of system-packages.txt) are installed when a
# target first needs them.
$(STAMPS)/system $(STAMPS)/system-test $(STAMPS)/system-docs $(STAMPS)/system-integrations $(STAMPS)/system-wheel $(STAMPS)/system-browser $(STAMPS)/system-full $(STAMPS)/system-fuzz: system-packages.txt third_party/install-system-packages.sh
	@third_party/install-system-packages.sh $(LOGS)/$(@F).log $(patsubst system-%,%,$(filter system-%,$(@F)))
	@mkdir -p $(STAMPS) && touch $@

# The C components need no torch, so they are compiled while pip downloads and unpacks it.
MEANWHILE = $(if $(TORCH),,--meanwhile "exec nice third_party/compile-early.sh $(abspath $(VENV_PYTHON)) $(JOBS)" --meanwhile-log $(LOGS)/early.log)
$(STAMPS)/venv: requirements/torch.txt requirements/build.txt requirements/demo.txt $(STAMPS)/system
	@[ -x $(VENV_PYTHON) ] || $(call logged,venv) "virtual environment in $(VENV)" $(PYTHON) -m venv $(VENV)
	@$(call logged,packages-build) "Python packages of the build" $(PIP_INSTALL) -r requirements/build.txt
	@$(call logged,packages) $(MEANWHILE) "Python packages" $(PIP_INSTALL) $(if $(TORCH),torch==$(TORCH),-r $<) -r requirements/demo.txt
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/venv-test $(STAMPS)/venv-docs $(STAMPS)/venv-integrations $(STAMPS)/venv-wheel: $(STAMPS)/venv-%: requirements/%.txt $(STAMPS)/venv $(STAMPS)/system-%
	@$(call logged,packages-$*) "Python packages for $*" $(PIP_INSTALL) -r $<
	@touch $@

$(STAMPS)/venv-packs: requirements/packs.txt $(STAMPS)/venv
	@$(call logged,packages-packs) "Python packages for packs" $(PIP_INSTALL) -r $<
	@touch $@

$(STAMPS)/install: $(STAMPS)/venv $(SOURCES)
	@TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(call logged,install) "build and install" $(PIP_INSTALL) -v --no-build-isolation --no-deps $(BUILD_SETTINGS) .
	@touch $@

setup: $(STAMPS)/venv-test $(STAMPS)/venv-docs
install: $(STAMPS)/install

# DEVICE: the plugin, TORCH_BACKEND or fake by default. That of Vulkan has its kernels in a pack. The first import of
# torch reads some 500 MB, so it has a line of progress of its own.
DEVICE ?= $(or $(TORCH_BACKEND),fake)
demo: $(STAMPS)/install $(if $(filter vulkan,$(DEVICE)),install-packs)
	@$(PROGRESS) "load PyTorch" $(VENV_PYTHON) -P -c "import torch_backend"
	TORCH_BACKEND=$(DEVICE) $(VENV_PYTHON) -P -m torch_backend.demo

test: test-c test-python

test-c: $(STAMPS)/venv-test $(STAMPS)/pjrt
	@$(call logged,configure) "configure the C tests" cmake --preset release -DPython_EXECUTABLE=$(abspath $(VENV_PYTHON))
	@$(call logged,build) "build the C tests" cmake --build --preset release
	$(AS_PROCESSOR) $(PROGRESS) "C tests" ctest --test-dir build/release --output-on-failure -j $(JOBS) -LE slow \
	  --output-junit $(CURDIR)/$(BUILD)/seconds-c.xml
	$(PYTHON) test/seconds.py test/seconds.txt $(BUILD)/seconds-c.xml

test-python: $(STAMPS)/install $(STAMPS)/venv-test $(STAMPS)/pjrt
	$(PYTEST) --junitxml $(BUILD)/seconds-python.xml
	$(PYTHON) test/seconds.py test/seconds.txt $(BUILD)/seconds-python.xml

# The CPU's PJRT plugins, in folders that do not depend on the version of torch.
$(STAMPS)/pjrt $(STAMPS)/pjrt-old: $(STAMPS)/%: requirements/%.txt $(STAMPS)/venv
	@$(call logged,$*) "the CPU's PJRT plugin ($*)" $(PIP_INSTALL) --no-deps --require-hashes --only-binary :all: --upgrade \
	  --target build/$* -r $<
	@touch $@

# Any supported version of torch (pyproject.toml). The first run downloads some gigabytes, because PyPI's wheel depends
# on CUDA's libraries.
test-torch:
	@[[ "$(VERSION)" =~ ^[0-9]+\.[0-9]+\.[0-9]+$$ ]] || { echo "make test-torch: name a torch, as in VERSION=2.15.0" >&2; exit 2; }
	$(MAKE) test-python TORCH=$(VERSION)

# Runs on a machine with a GPU the tests that CI runs with the mock drivers.
test-cuda: $(STAMPS)/install $(STAMPS)/venv-test
	@$(call logged,configure) "configure the C tests" cmake --preset release -DPython_EXECUTABLE=$(abspath $(VENV_PYTHON))
	@$(call logged,build) "build the C tests" cmake --build --preset release
	$(PYTHON) test/cuda_hardware.py --logs build/cuda-hardware
	TORCH_BACKEND=cuda $(VENV_PYTHON) test/opinfo/run.py --full --mode async --plugin cuda

# A pack next to a plugin takes precedence over all compilers (docs/packaging.md). The kernels do not depend on torch,
# so one pack serves all versions.
PACKS ?=
PACK_FOLDER := build/packs
PACK_FORM := simt # for NPUs and GPUs
packs: $(PACK_FOLDER)/libhal_npu.pack $(PACK_FOLDER)/libhal_vulkan.pack
$(PACK_FOLDER)/libhal_npu.pack: $(STAMPS)/install $(STAMPS)/system-test
	@mkdir -p $(@D)
	$(VENV_PYTHON) -P -m torch_backend pack --form $(PACK_FORM) --jobs $(JOBS) --output $@
# clspv fails on some kernels, which run on the CPU then: hal-pack lists them and ends with 1.
CLSPV := $(abspath $(VENV_PYTHON)) -P $(CURDIR)/plugins/vulkan/clspv_compiler.py
$(PACK_FOLDER)/libhal_vulkan.pack: $(STAMPS)/install $(STAMPS)/venv-packs $(STAMPS)/system-test plugins/vulkan/clspv_compiler.py
	@mkdir -p $(@D)
	$(VENV_PYTHON) -P -m torch_backend pack --dialect spirv-vulkan --compiler "$(CLSPV)" --jobs $(JOBS) --output $@ || [ -s $@ ]
# Packs next to the installed plugins.
.PHONY: install-packs
install-packs: packs
	cp $(PACK_FOLDER)/libhal_*.pack "$$(cd / && TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(abspath $(VENV_PYTHON)) -P -c 'import torch_backend, os; print(os.path.dirname(torch_backend.__file__))')/plugins/"
WITH_PACKS = $(if $(PACKS),SKBUILD_CMAKE_DEFINE="TORCH_BACKEND_PACKS=$(abspath $(PACK_FOLDER))")

# Builds for each version of torch in a separate environment, as above; files that they share must be equal in all of
# them. auditwheel renames the assembled wheel after the oldest C library that it runs with. The libraries of torch are
# excluded.
WHEELS := build/wheels$(OTHER_PYTHON:%=/%)
wheel: $(if $(PACKS),packs) $(STAMPS)/venv-wheel
	for version in $(TORCH_VERSIONS); do $(MAKE) wheel-for-torch TORCH=$$version; done
	rm -rf $(WHEELS)/assembled
	$(PYTHON) cmake/assemble_wheel.py $(WHEELS)/assembled $(TORCH_VERSIONS:%=$(WHEELS)/%/*.whl)
	PATH=$(abspath $(VENV)/bin):$$PATH $(VENV)/bin/auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' -w dist $(WHEELS)/assembled/*.whl

wheel-for-torch: FOLDER = $(WHEELS)/$(or $(TORCH),$(DEFAULT_TORCH))
wheel-for-torch: $(STAMPS)/venv
	@rm -rf $(FOLDER)
	$(WITH_PACKS) TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(call logged,wheel) "$(FOLDER)" $(PIP) wheel -v --no-build-isolation --no-deps $(BUILD_SETTINGS) -w $(FOLDER) .

# docs/releasing.md has the steps of a release. The check comes first, since the wheels take long, and prints at the end
# the commands that publish them.
release:
	@$(PYTHON) cmake/check_release.py > /dev/null
	$(MAKE) wheel
	$(MAKE) test-wheel
	$(VENV)/bin/twine check --strict dist/*
	@$(PYTHON) cmake/check_release.py

# The wheel in dist in a fresh environment for each torch, without the source tree.
test-wheel:
	for version in $(TORCH_VERSIONS); do \
	  $(PYTHON) test/wheel.py --torch $$version --folder $(WHEELS)/test-$$version dist; \
	done

# Tests that take minutes: forks, process ends and failures two hundred times under load; the Python tests with memory
# that the host cannot access and with other random numbers; the operator database with all dtypes, modes and samples;
# the operators in C on OpenCL with both kinds of kernels. `make test` runs a fast subset.
test-full: test $(STAMPS)/install $(STAMPS)/pjrt-old $(STAMPS)/triton $(STAMPS)/venv-packs $(STAMPS)/system-browser $(STAMPS)/system-full
	cmake --preset release -DPython_EXECUTABLE=$(abspath $(VENV_PYTHON)) # finds what was installed since
	ctest --test-dir build/release --output-on-failure -j $(JOBS) -L slow
	$(VENV)/bin/pytest -q -m slow test/python
	TORCH_BACKEND_TEST_SEED=random HAL_FAKE_PROTECT=1 $(PYTEST) --deselect test/python/operators/test_opinfo.py::test_every_entry_has_the_cpus_result
	TORCH_BACKEND=fake $(VENV_PYTHON) test/opinfo/run.py --full
	$(VENV_PYTHON) test/kernels/compile_kernels.py --all || [ $$? = 77 ]
	TORCH_BACKEND=fake $(VENV_PYTHON) -P test/upstream/run.py
	for setting in HAL_FAKE_ASYNC=1 HAL_FAKE_ASYNC=0 TORCH_BACKEND_TEST_PLUGIN=template; do \
	  env $$setting HAL_TEST_PROGRAMS=1700 HAL_ALLOW_UNSAFE_PLUGINS=1 HAL_PLUGIN_PATH=$(CURDIR)/build/release/plugins \
	    $(VENV)/bin/pytest -q -k test_deferred_work_has_the_bits_of_eager_mode test/python/device/test_lazy_programs.py; \
	done
	for program in lifetime failures; do \
	  HAL_TEST_REPEAT=200 HAL_ALLOW_UNSAFE_PLUGINS=1 build/release/test/hal/hal_stress_$$program; \
	done

# Tests of features that PoCL lacks: unified shared memory, SPIR-V, half precision. Prints the reason and succeeds if
# the runtime is unavailable or does not run.
test-intel-opencl: $(STAMPS)/install $(STAMPS)/venv-test
	@$(call logged,configure) "configure the C tests" cmake --preset release -DPython_EXECUTABLE=$(abspath $(VENV_PYTHON))
	@$(call logged,build) "build the C tests" cmake --build --preset release
	$(VENV_PYTHON) -P test/intel_opencl.py

# Tests with libraries from PyPI that users install; without them these tests are skipped, and `make test` runs the
# rest.
test-integrations: $(STAMPS)/install $(STAMPS)/venv-integrations $(STAMPS)/timm
	$(PYTEST)/integrations test/python/training/test_mixtral.py

$(STAMPS)/triton: requirements/triton.txt $(STAMPS)/venv
	@$(call logged,triton) "Triton" $(PIP_INSTALL) --no-deps --upgrade --target build/triton -r $<
	@touch $@

$(STAMPS)/timm: requirements/timm.txt $(STAMPS)/venv
	@$(call logged,timm) "Python packages for timm" $(PIP_INSTALL) --no-deps --upgrade --target build/timm -r $<
	@touch $@

# SECONDS=1800: time of each target; TARGETS=settings: one of them. The next run goes on where this one ends.
fuzz: $(STAMPS)/venv $(STAMPS)/system-fuzz
	cmake --preset fuzz -DPython_EXECUTABLE=$(abspath $(VENV_PYTHON))
	cmake --build --preset fuzz
	$(VENV_PYTHON) test/fuzz/fuzz.py build/fuzz --seconds $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60) $(TARGETS)

# SECONDS=600: each program of threads is repeated for as long.
test-sanitizers: export HAL_TEST_SECONDS := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)
test-sanitizers: $(STAMPS)/venv-test
	for preset in asan tsan; do \
	  cmake --preset $$preset -DPython_EXECUTABLE=$(abspath $(VENV_PYTHON)); \
	  cmake --build --preset $$preset; \
	  ctest --test-dir build/$$preset --output-on-failure -LE slow -j $(JOBS); \
	done

bench: $(STAMPS)/install test-c
	for script in test/bench/*.py; do echo "== $$script"; $(VENV_PYTHON) -P $$script; done
	for program in build/release/test/bench_*; do \
	  echo "== $$program"; HAL_PLUGIN_PATH=$(CURDIR)/build/release/plugins $$program; \
	done

docs: docs-headers
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(VENV_PYTHON) codegen/aten.py --out build/docs/aten
	DOXYGEN_OUT=$(CURDIR)/build/docs OPERATORS_MD=$(CURDIR)/build/docs/aten/operators.md TORCH_DEVICE_BACKEND_AUTOLOAD=0 \
	  $(VENV_PYTHON) -P -m sphinx -W --keep-going -q -b html docs build/docs/html
	$(VENV_PYTHON) -P docs/_tools/check_python_documented.py build/docs/html

# The documentation of the headers alone, and the check that each public function has it.
docs-headers: $(STAMPS)/install $(STAMPS)/venv-docs
	mkdir -p build/docs/c build/docs/cpp
	cd docs && DOXYGEN_INPUT=../hal/include/hal DOXYGEN_OUT=$(CURDIR)/build/docs/c doxygen Doxyfile
	cd docs && DOXYGEN_INPUT=../csrc/api DOXYGEN_OUT=$(CURDIR)/build/docs/cpp doxygen Doxyfile
	$(VENV_PYTHON) docs/_tools/check_documented.py build/docs/c/xml build/docs/cpp/xml

# The pictures of the README. They are committed, so that readers see them without a build.
pictures: $(STAMPS)/venv-docs
	$(VENV_PYTHON) docs/_tools/pictures.py docs/pictures --readme

C_FILES = $(shell git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cpp' | grep -vE '^hal/kernels/pk.h$$|^test/abi/[0-9.]+/(include|sdk)/')
format:
	clang-format-14 -i $(C_FILES)
check-format:
	@clang-format-14 --dry-run --Werror $(C_FILES)
	$(PYTHON) test/words/words.py

clean:
	rm -rf build dist
