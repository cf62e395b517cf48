/* nvrtc.c: a library with the name of NVRTC, whose compiler is compile.c. A "cubin" is a shared object of this
   machine. */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "compiler_api.h"

#define API __attribute__((visibility("default")))

struct _nvrtcProgram {
  char *source, *name, *ptx, *cubin, *log;
  size_t cubin_size;
};

#define DECLARE(name, parameters) API nvrtcResult name parameters;
NVRTC_CALLS(DECLARE)

API nvrtcResult nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}

static const int architectures[] = {75, 80, 86, 89, 90, 100};

API nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
  *count = (int)(sizeof architectures / sizeof *architectures);
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetSupportedArchs(int *out) {
  memcpy(out, architectures, sizeof architectures);
  return NVRTC_SUCCESS;
}

static int is_supported(unsigned architecture) {
  for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
    if ((unsigned)architectures[i] == architecture) return 1;
  return 0;
}

API nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int header_count,
                                   const char *const *headers, const char *const *include_names) {
  (void)headers, (void)include_names;
  if (!program || !source || header_count) return NVRTC_ERROR_INVALID_INPUT;
  nvrtcProgram const made = calloc(1, sizeof *made);
  if (!made) return NVRTC_ERROR_OUT_OF_MEMORY;
  made->source = strdup(source);
  made->name = strdup(name ? name : "default_program");
  if (made->source && made->name) {
    *program = made;
    return NVRTC_SUCCESS;
  }
  nvrtcProgram gone = made;
  nvrtcDestroyProgram(&gone);
  return NVRTC_ERROR_OUT_OF_MEMORY;
}

static void forget(nvrtcProgram program) {
  free(program->ptx);
  free(program->cubin);
  free(program->log);
  program->ptx = program->cubin = program->log = NULL;
  program->cubin_size = 0;
}

API nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
  if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
  forget(*program);
  free((*program)->source);
  free((*program)->name);
  free(*program);
  *program = NULL;
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count, const char *const *options) {
  compile_options_t read;
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  forget(program);
  int status = mock_compile(program->source, program->name, option_count, options, &read, &program->ptx, &program->log);
  if (!status && !is_supported(read.architecture)) status = COMPILE_BAD_OPTION;
  /* A text is valid or invalid for both kinds: invalid text is refused here, like in the real library. */
  if (!status)
    status = mock_assemble(program->ptx, read.architecture, &program->cubin, &program->cubin_size, &program->log);
  if (!status && !read.real) {
    free(program->cubin);
    program->cubin = NULL;
    program->cubin_size = 0;
  }
  return status == COMPILE_GOOD         ? NVRTC_SUCCESS
         : status == COMPILE_WRONG      ? NVRTC_ERROR_COMPILATION
         : status == COMPILE_BAD_OPTION ? NVRTC_ERROR_INVALID_OPTION
                                        : NVRTC_ERROR_INTERNAL_ERROR;
}

API nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  *bytes = program->ptx ? strlen(program->ptx) + 1 : 0;
  return program->ptx ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_PROGRAM;
}

API nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *ptx) {
  if (!program || !program->ptx) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(ptx, program->ptx, strlen(program->ptx) + 1);
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  *bytes = program->cubin_size;
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *cubin) {
  if (!program || !program->cubin) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(cubin, program->cubin, program->cubin_size);
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  *bytes = program->log ? strlen(program->log) + 1 : 1;
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(log, program->log ? program->log : "", program->log ? strlen(program->log) + 1 : 1);
  return NVRTC_SUCCESS;
}
