/* compile.c: compiles CUDA C as C++: preprocessed after prelude.hpp, rewritten (rewrite.c), and compiled by the
 * machine's C++ compiler (CUDA_MOCK_CXX, else g++). The text between these two steps takes the place of PTX. */
#define _GNU_SOURCE /* open_memstream */
#include "compile.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rewrite.h"

extern char **environ;

/* The bytes of prelude.hpp. */
__asm__(
    ".pushsection .rodata\n"
    "cuda_mock_prelude: .incbin \"" PRELUDE_FILE
    "\"\n"
    ".byte 0\n"
    ".popsection\n");
extern const char cuda_mock_prelude[] __attribute__((visibility("hidden")));

#define BEGINNING "#pragma cuda_mock_source"
#define PTX_HEAD "// The mock driver's PTX: C++ for this machine's compiler.\n"
enum { MOST_WORDS = 96, PATH_ROOM = 128 };

/* ---- files and programs ---- */

/* A folder for the files of one compilation. */
typedef struct folder_s {
  char path[PATH_ROOM];
} folder_t;

static int folder_make(folder_t *folder) {
  const char *const tmp = getenv("TMPDIR");
  const int length = snprintf(folder->path, sizeof folder->path, "%s/cuda_mock.XXXXXX", tmp && *tmp ? tmp : "/tmp");
  return length < (int)sizeof folder->path && mkdtemp(folder->path);
}

static const char *const file_names[] = {"in", "out", "log"};
enum { FILE_IN, FILE_OUT, FILE_LOG, FILES };

static void file_path(const folder_t *folder, int file, char path[PATH_ROOM + 8]) {
  snprintf(path, PATH_ROOM + 8, "%s/%s", folder->path, file_names[file]);
}

static void folder_remove(const folder_t *folder) {
  char path[PATH_ROOM + 8];
  for (int i = 0; i < FILES; i++) {
    file_path(folder, i, path);
    unlink(path);
  }
  rmdir(folder->path);
}

static int write_file(const folder_t *folder, const char *head, const char *text) {
  char path[PATH_ROOM + 8];
  file_path(folder, FILE_IN, path);
  FILE *const file = fopen(path, "we");
  if (!file) return 0;
  const int good = fputs(head, file) >= 0 && fputs(text, file) >= 0;
  return fclose(file) == 0 && good;
}

/* Reads a file and appends a NUL; returns NULL on failure. */
static char *read_file(const folder_t *folder, int file, size_t *out_size) {
  char path[PATH_ROOM + 8];
  struct stat facts;
  file_path(folder, file, path);
  FILE *const stream = fopen(path, "re");
  if (!stream) return NULL;
  const size_t size = fstat(fileno(stream), &facts) ? 0 : (size_t)facts.st_size;
  char *const data = malloc(size + 1);
  const size_t got = data ? fread(data, 1, size, stream) : 0;
  fclose(stream);
  if (data) data[got] = '\0';
  if (out_size) *out_size = got;
  return data;
}

/* Returns the exit status, -1 if the program cannot be run. */
static int run(const folder_t *folder, const char *const *words) {
  posix_spawn_file_actions_t actions;
  char path[PATH_ROOM + 8];
  pid_t child;
  int status = 0;
  file_path(folder, FILE_LOG, path);
  if (posix_spawn_file_actions_init(&actions)) return -1;
  int code = posix_spawn_file_actions_addopen(&actions, 2, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (!code) code = posix_spawnp(&child, words[0], &actions, NULL, (char *const *)(uintptr_t)words, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code) return -1;
  while (waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char *compiler(void) {
  const char *const named = getenv("CUDA_MOCK_CXX");
  return named && *named ? named : "g++";
}

/* ---- options ---- */

/* Returns the part of an option after one of its names, NULL if it is another option. */
static const char *value_of(const char *option, const char *name) {
  while (*option == '-') option++;
  const size_t length = strlen(name);
  return strncmp(option, name, length) == 0 ? option + length : NULL;
}

static int read_architecture(const char *text, compile_options_t *out) {
  out->real = strncmp(text, "sm_", 3) == 0;
  if (!out->real && strncmp(text, "compute_", 8) != 0) return 0;
  out->architecture = (unsigned)strtoul(text + (out->real ? 3 : 8), NULL, 10);
  return out->architecture >= 50 && out->architecture <= 200;
}

/* Options without an effect here. */
static int is_passed_over(const char *option) {
  static const char *const names[] = {"std=",
                                      "use_fast_math",
                                      "device-as-default-execution-space",
                                      "default-device",
                                      "restrict",
                                      "lineinfo",
                                      "generate-line-info",
                                      "maxrregcount=",
                                      "dopt=",
                                      "w"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (value_of(option, names[i])) return 1;
  return 0;
}

/* Parses an option. Returns 1; 0 = unknown option. Preprocessor options are appended as arguments for it. */
static int read_option(const char *option, compile_options_t *out, const char **words, int *count) {
  const char *value = value_of(option, "gpu-architecture=");
  if (!value) value = value_of(option, "arch=");
  if (value) return read_architecture(value, out);
  value = value_of(option, "fmad=");
  if (value) {
    out->fmad = strcmp(value, "false") != 0;
    return 1;
  }
  if (strncmp(option, "-D", 2) != 0 && strncmp(option, "-U", 2) != 0 && strncmp(option, "-I", 2) != 0)
    return is_passed_over(option);
  if (*count >= MOST_WORDS - 16) return 0;
  words[(*count)++] = option;
  return 1;
}

/* ---- CUDA C to C++ ---- */

static void write_table(const rewritten_t *found, FILE *to) {
  fprintf(to,
          "\n%s\nextern \"C\" { void (*cuda_mock_yield)(void); }\nstatic const cuda_mock_kernel "
          "cuda_mock_kernels[] = {\n",
          found->has_barrier ? "" : "/* no barrier */");
  for (unsigned i = 0; i < found->kernel_count; i++)
    fprintf(to, "{\"%s\", cuda_mock_entry<%s>::run, cuda_mock_entry<%s>::sizes, cuda_mock_entry<%s>::count},\n",
            found->kernels[i], found->kernels[i], found->kernels[i], found->kernels[i]);
  fprintf(to,
          "{nullptr, nullptr, nullptr, 0}};\n"
          "extern \"C\" __attribute__((visibility(\"default\"))) const cuda_mock_module cuda_mock_image = "
          "{1, CUDA_MOCK_ARCHITECTURE, %s, cuda_mock_kernels, %u};\n",
          found->has_barrier ? "&cuda_mock_yield" : "nullptr", found->kernel_count);
}

/* Writes the text in place of PTX: a head like that of PTX, and the C++. */
static char *translate(const char *preprocessed, const compile_options_t *options, char **out_log) {
  const char *const source = strstr(preprocessed, BEGINNING);
  char *ptx = NULL, *body = NULL;
  size_t size = 0, body_size = 0;
  rewritten_t *const found = malloc(sizeof *found);
  FILE *const inner = open_memstream(&body, &body_size), *const to = open_memstream(&ptx, &size);
  if (source && found && inner && to) {
    rewrite(source + strlen(BEGINNING), inner, found);
    fflush(inner);
    fprintf(to, ".version 9.0\n.target sm_%u\n.address_size 64\n// fmad %d\n", options->architecture, options->fmad);
    for (unsigned i = 0; i < found->kernel_count; i++) fprintf(to, "// .visible .entry %s(\n", found->kernels[i]);
    fputs(PTX_HEAD, to);
    fwrite(preprocessed, 1, (size_t)(source - preprocessed), to);
    fputs(body, to);
    write_table(found, to);
    if (found->problem[0] &&
        asprintf(out_log, "kernel.cu: error: the mock driver does not support %s\n", found->problem) < 0)
      *out_log = NULL;
  }
  const int good = source && found && !found->problem[0];
  if (inner) fclose(inner);
  if (to) fclose(to);
  free(body);
  free(found);
  if (good) return ptx;
  free(ptx);
  return NULL;
}

int mock_compile(const char *source, const char *name, int count, const char *const *options,
                 compile_options_t *out_options, char **out_ptx, char **out_log) {
  folder_t folder;
  const char *words[MOST_WORDS] = {compiler(), "-E", "-w", "-x", "c++", "-std=gnu++17", "-nostdinc"};
  char head[256], architecture[64], in[PATH_ROOM + 8], out[PATH_ROOM + 8], *whole = NULL;
  int word = 7, status = COMPILE_BROKEN;
  *out_options = (compile_options_t){.architecture = 75, .fmad = 1};
  for (int i = 0; i < count; i++)
    if (!read_option(options[i], out_options, words, &word)) {
      if (asprintf(out_log, "nvrtc: error: invalid value or name of the option %s\n", options[i]) < 0) *out_log = NULL;
      return COMPILE_BAD_OPTION;
    }
  if (!folder_make(&folder)) return COMPILE_BROKEN;
  file_path(&folder, FILE_IN, in);
  file_path(&folder, FILE_OUT, out);
  snprintf(architecture, sizeof architecture, "-D__CUDA_ARCH__=%u", out_options->architecture * 10);
  snprintf(head, sizeof head, "\n" BEGINNING "\n#line 1 \"%.200s\"\n", name && *name ? name : "default_program");
  words[word++] = architecture;
  words[word++] = "-o";
  words[word++] = out;
  words[word++] = in;
  words[word] = NULL;
  if (asprintf(&whole, "%s%s%s", cuda_mock_prelude, head, source) >= 0 && write_file(&folder, "", whole)) {
    const int code = run(&folder, words);
    char *const text = code ? NULL : read_file(&folder, FILE_OUT, NULL);
    *out_log = text ? NULL : read_file(&folder, FILE_LOG, NULL);
    *out_ptx = text ? translate(text, out_options, out_log) : NULL;
    status = *out_ptx ? COMPILE_GOOD : code < 0 ? COMPILE_BROKEN : COMPILE_WRONG;
    free(text);
  }
  free(whole);
  folder_remove(&folder);
  return status;
}

/* ---- C++ to a shared object ---- */

int mock_assemble(const char *ptx, unsigned architecture, char **out_binary, size_t *out_size, char **out_log) {
  const char *const text = strstr(ptx, PTX_HEAD), *const target = strstr(ptx, ".target sm_");
  char own[64], in[PATH_ROOM + 8], out[PATH_ROOM + 8];
  folder_t folder;
  if (!text || !target || strtoul(target + strlen(".target sm_"), NULL, 10) > architecture) {
    *out_log = strdup(text ? "ptxas: error: PTX of a later architecture\n"
                           : "ptxas: error: this is not PTX of the mock driver\n");
    return COMPILE_WRONG;
  }
  if (!folder_make(&folder)) return COMPILE_BROKEN;
  file_path(&folder, FILE_IN, in);
  file_path(&folder, FILE_OUT, out);
  snprintf(own, sizeof own, "#define CUDA_MOCK_ARCHITECTURE %u\n", architecture);
  const char *const words[] = {compiler(),
                               "-w",
                               "-x",
                               "c++",
                               "-std=gnu++17",
                               "-O2",
                               "-fPIC",
                               "-shared",
                               "-fvisibility=hidden",
                               "-fno-exceptions",
                               "-fno-rtti",
                               "-fno-threadsafe-statics",
                               "-fno-math-errno",
                               strstr(ptx, "// fmad 0\n") ? "-ffp-contract=off" : "-ffp-contract=fast",
                               "-nostdlib",
                               "-o",
                               out,
                               in,
                               "-lm",
                               "-lgcc",
                               "-lc",
                               NULL};
  int status = COMPILE_BROKEN;
  if (write_file(&folder, own, text)) {
    const int code = run(&folder, words);
    if (!code) *out_binary = read_file(&folder, FILE_OUT, out_size);
    *out_log = *out_binary ? NULL : read_file(&folder, FILE_LOG, NULL);
    status = *out_binary ? COMPILE_GOOD : code < 0 ? COMPILE_BROKEN : COMPILE_WRONG;
  }
  folder_remove(&folder);
  return status;
}
