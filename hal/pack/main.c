/* main.c: the program hal-pack. Exit codes: 0 the pack has all requested modules, 1 there is no pack or some modules
 * are missing in it, 2 wrong usage. */
#define _GNU_SOURCE /* getopt_long */
#include <fnmatch.h>
#include <getopt.h>
#include <hal/plugin_clang.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "kernel_text.h"
#include "op/provider.h"
#include "op/source.h"
#include "packing.h"

static const char usage[] =
    "hal-pack --output FILE.pack [options]: compiles the portable kernels ahead, into a file that users install next "
    "to\n"
    "the plugin as libhal_<name>.pack\n"
    "  (no compiler)       SPIR-V, by clang and llvm-spirv of one version on PATH\n"
    "  --compiler COMMAND  instead, in a shell: COMMAND SOURCE OUTPUT OPTIONS..., for each kernel; HAL_PACK_KERNEL "
    "has\n"
    "                      the name of the kernel, HAL_PACK_FP64 is 0 for devices without double precision\n"
    "  --plugin PATH       instead: the binaries that the first device of this plugin makes\n"
    "  --source DIALECT    dialect of the sources that COMMAND reads: opencl-c (default) or cuda-c\n"
    "  --dialect DIALECT   dialect of the modules that COMMAND writes, spirv by default\n"
    "  --form simt|cpu     for devices with many threads, for those with few wide cores; may be repeated; default "
    "simt\n"
    "  --fp64 yes|no|both  for devices with double precision, without, for both (default)\n"
    "  --kernels LIST      only kernels with these names; commas, * and ? are allowed\n"
    "  --limit SECONDS     time for one module, after which its compiler is ended and the module is left out; 60 by\n"
    "                      default, 0 for no limit; does not apply to --plugin\n"
    "  --list              prints the names of the kernels\n"
    "  --skip-code N       exit code if clang and llvm-spirv are missing, 1 by default\n"
    "  --jobs N            compilers that run at the same time, one for each processor by default\n"
    "  --quiet             no progress\n";

static int skip_code = 1, list_only;

static int add_form(packing_t *packing, const char *name) {
  const uint32_t form = strcmp(name, "cpu") == 0 ? HAL_FORM_CPU_VECTOR : HAL_FORM_SIMT;
  if (form == HAL_FORM_SIMT && strcmp(name, "simt") != 0)
    return fprintf(stderr, "hal-pack: invalid form '%s': expected simt or cpu\n", name), 0;
  for (uint32_t i = 0; i < packing->form_count; i++)
    if (packing->forms[i] == form) return 1;
  packing->forms[packing->form_count++] = form;
  return 1;
}

static int set_fp64(packing_t *packing, const char *word) {
  packing->fp64 = strcmp(word, "no") != 0;
  packing->without_fp64 = strcmp(word, "yes") != 0;
  if (strcmp(word, "yes") == 0 || strcmp(word, "no") == 0 || strcmp(word, "both") == 0) return 1;
  return fprintf(stderr, "hal-pack: invalid --fp64 '%s': expected yes, no or both\n", word), 0;
}

static int set_limit(packing_t *packing, const char *word) {
  char *end = NULL;
  packing->limit = strtod(word, &end);
  if (end != word && !*end && packing->limit >= 0 && packing->limit < 1e9) return 1;
  return fprintf(stderr, "hal-pack: invalid --limit '%s': expected a number of seconds, 0 for no limit\n", word), 0;
}

static int read_options(int argc, char **argv, packing_t *packing) {
  enum { OUTPUT = 1, COMPILER, PLUGIN, SOURCE, DIALECT, FORM, FP64, KERNELS, LIMIT, LIST, SKIP, JOBS, QUIET, HELP };
  static const struct option options[] = {
      {"output", 1, NULL, OUTPUT}, {"compiler", 1, NULL, COMPILER}, {"plugin", 1, NULL, PLUGIN},
      {"source", 1, NULL, SOURCE}, {"dialect", 1, NULL, DIALECT},   {"form", 1, NULL, FORM},
      {"fp64", 1, NULL, FP64},     {"kernels", 1, NULL, KERNELS},   {"limit", 1, NULL, LIMIT},
      {"list", 0, NULL, LIST},     {"skip-code", 1, NULL, SKIP},    {"jobs", 1, NULL, JOBS},
      {"quiet", 0, NULL, QUIET},   {"help", 0, NULL, HELP},         {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (option == OUTPUT) packing->output = optarg;
    if (option == COMPILER) packing->compiler = optarg;
    if (option == PLUGIN) packing->plugin = optarg;
    if (option == SOURCE) packing->source = optarg;
    if (option == DIALECT) packing->dialect = optarg;
    if (option == KERNELS) packing->patterns = optarg;
    if (option == LIST) list_only = 1;
    if (option == QUIET) packing->quiet = 1;
    if (option == SKIP) skip_code = atoi(optarg);
    if (option == JOBS) packing->jobs = atol(optarg);
    if (option == FORM && !add_form(packing, optarg)) return 0;
    if (option == FP64 && !set_fp64(packing, optarg)) return 0;
    if (option == LIMIT && !set_limit(packing, optarg)) return 0;
    if (option == '?' || option == HELP) return printf("%s", usage), 0;
  }
  if (optind < argc) return fprintf(stderr, "hal-pack: unknown option '%s'; see --help\n", argv[optind]), 0;
  if (!list_only && !packing->output) return fprintf(stderr, "hal-pack: missing --output FILE.pack; see --help\n"), 0;
  if (packing->compiler && packing->plugin)
    return fprintf(stderr, "hal-pack: --compiler and --plugin exclude each other\n"), 0;
  if (strlen(packing->dialect) >= HAL_PACK_DIALECT ||
      (strcmp(packing->source, "opencl-c") != 0 && strcmp(packing->source, "cuda-c") != 0))
    return fprintf(stderr,
                   "hal-pack: invalid --source '%s' or --dialect '%s': expected opencl-c or cuda-c, a short name\n",
                   packing->source, packing->dialect),
           0;
  return 1;
}

/* Returns whether --kernels names a kernel. */
static int is_wanted(const packing_t *packing, const char *name) {
  char pattern[256];
  if (!packing->patterns) return 1;
  for (const char *at = packing->patterns; *at; at += *at == ',') {
    const int length = (int)strcspn(at, ",");
    snprintf(pattern, sizeof pattern, "%.*s", length, at);
    if (fnmatch(pattern, name, 0) == 0) return 1;
    at += length;
  }
  return 0;
}

/* Names the modules of the conformance suite, once for all forms; a device cannot compile them for a pack. */
static size_t name_suite(const packing_t *packing, packed_t *modules, size_t count) {
  static const char *const names[] = {CTS_PACKED, CTS_PACKED_DOUBLES};
  for (int with_doubles = 0; with_doubles < 2; with_doubles++) {
    if (packing->plugin || (with_doubles && !packing->fp64) || !is_wanted(packing, names[with_doubles])) continue;
    modules[count++] = (packed_t){.kernel = names[with_doubles], .fp64 = with_doubles, .of_suite = 1};
  }
  return count;
}

/* Lists the modules. name_rest adds those for devices without double precision, if they differ (build.c). */
static size_t name_modules(const packing_t *packing, packed_t *modules, int fp64) {
  size_t count = 0;
  for (uint32_t form = 0; form < packing->form_count; form++)
    for (size_t i = 0; i < hal_op_source_count(); i++) {
      const char *const name = hal_op_source_name(i);
      if (!is_wanted(packing, name) || (!fp64 && hal_provider_needs_fp64(name))) continue;
      modules[count++] = (packed_t){.kernel = name, .form = packing->forms[form], .fp64 = fp64};
    }
  return name_suite(packing, modules, count);
}

/* Adds modules for devices without double precision after `count` modules for devices with it, of the kernels whose
 * modules use it. */
static size_t name_rest(packed_t *modules, size_t count) {
  size_t all = count;
  for (size_t i = 0; i < count; i++)
    if (modules[i].data && !modules[i].of_suite && !modules[i].same_without &&
        !hal_provider_needs_fp64(modules[i].kernel))
      modules[all++] = (packed_t){.kernel = modules[i].kernel, .form = modules[i].form};
  return all;
}

static int pack(packing_t *packing) {
  packed_t *const modules = calloc(2 * packing->form_count * hal_op_source_count() + 2, sizeof *modules);
  if (!modules) return fprintf(stderr, "hal-pack: no memory\n"), 1;
  size_t count = name_modules(packing, modules, packing->fp64);
  size_t failed = packing_compile(packing, modules, count);
  if (packing->fp64 && packing->without_fp64) {
    const size_t all = name_rest(modules, count);
    failed += packing_compile(packing, modules + count, all - count);
    count = all;
  }
  packing_report(modules, count, failed);
  if (!count) fprintf(stderr, "hal-pack: no kernel matches '%s'; see --list\n", packing->patterns);
  const int written = count && failed < count && packing_write(packing, modules, count);
  for (size_t i = 0; i < count; i++) free(modules[i].data), free(modules[i].why);
  free(modules);
  return !written || failed;
}

int main(int argc, char **argv) {
  packing_t packing = {.source = "opencl-c",
                       .dialect = "spirv",
                       .fp64 = 1,
                       .without_fp64 = 1,
                       .jobs = sysconf(_SC_NPROCESSORS_ONLN),
                       .limit = 60};
  if (!read_options(argc, argv, &packing)) return 2;
  if (list_only) {
    for (size_t i = 0; i < hal_op_source_count(); i++) puts(hal_op_source_name(i));
    puts(CTS_PACKED "\n" CTS_PACKED_DOUBLES);
    return 0;
  }
  if (!packing.form_count) add_form(&packing, "simt");
  if (packing.plugin && !packing_device_open(&packing)) return 1;
  if (!packing.maker) packing.maker = packing.compiler ? packing.compiler : hal_clang_path();
  if (packing.maker) return pack(&packing);
  fprintf(stderr,
          "hal-pack: clang and llvm-spirv of one version are not on PATH (Debian: clang-14, llvm-spirv-14); install "
          "them, or pass --compiler\n");
  return skip_code;
}
