/* main.c: the program hal-cts. Exit codes: 0 no finding, 1 findings, 2 wrong usage or a report that could not be
 * written. */
#define _GNU_SOURCE /* realpath, getopt_long, MAP_ANONYMOUS */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "run.h"

enum { LIMIT_S = 120, LINE = 512 };

static const char usage[] =
    "hal-cts --plugin PATH [options]: tests a plugin against the rules of hal/plugin_ops.def\n"
    "  --suite NAME        this suite only, with the cases that all suites need\n"
    "  --case ID           this case only\n"
    "  --device N          the plugin's device, 0 by default\n"
    "  --list              the cases and their rules; needs no plugin\n"
    "  --rules             every rule with its id; needs no plugin\n"
    "  --report FILE.html  a report with the verdict on every rule\n"
    "  --junit FILE.xml    results for a build server\n"
    "  --json FILE.json    results for programs, such as torch-backend verify --diff\n"
    "  --tap               results as TAP on standard output\n"
    "  --unsupported FILE  lines \"CASE reason\": cases that are not run\n"
    "  --xfail FILE        lines \"CASE reason\": cases that must fail\n"
    "  --skip-code N       exit code when the hardware is missing and no case ran, 0 by default\n"
    "  --fault NAME=VALUE  a setting of the plugin that makes one of its first 100 launches fail\n"
    "  --compiler COMMAND  compiles the suite's kernels, for a device without opencl-c, cuda-c and host: COMMAND "
    "SOURCE\n"
    "                      OUTPUT, as for torch-backend pack\n"
    "  --dialect NAME      of what COMMAND writes, the device's first one by default\n"
    "  --stop              ends after the first finding\n"
    "  --verbose           lists every case, with why it was skipped or is blocked, and figures\n"
    "  --limit SECONDS     time of one case, 120 by default\n";

static cts_run_t run;
static int tap, verbose, skip_code;

static const char *rule_id(const cts_result_t *result) {
  return result->rule < cts_rule_count ? cts_rules[result->rule].id : "none";
}

/* ---- while the cases run ---- */

static void tell_tap(const cts_run_t *of, uint32_t number, int count) {
  const cts_result_t *const result = &of->results[number];
  const int bad = result->verdict == CTS_FAIL || result->verdict == CTS_BLOCKED || result->verdict == CTS_XFAIL;
  char id[64];
  cts_case_id(&cts_cases[number], id);
  printf("%sok %d - %s%s%s\n", bad ? "not " : "", count, id,
         result->verdict == CTS_XFAIL                                        ? " # TODO "
         : result->verdict == CTS_SKIP || result->verdict == CTS_UNSUPPORTED ? " # SKIP "
                                                                             : "",
         result->verdict == CTS_PASS || bad ? "" : result->text);
  if (bad) printf("# rule %s: %s\n", rule_id(result), result->text);
  fflush(stdout);
}

/* TAP is written case by case. Otherwise the verdict comes first, so that only a terminal shows the progress. */
static void tell(const cts_run_t *of, uint32_t number) {
  static int count;
  char id[64];
  count++;
  if (tap) return tell_tap(of, number, count);
  if (!isatty(STDERR_FILENO)) return;
  cts_case_id(&cts_cases[number], id);
  fprintf(stderr, "\r%d of %u cases: %-40s", count, cts_case_count, id);
}

/* ---- when all have run ---- */

static void put_finding(const cts_run_t *of, uint32_t number) {
  const cts_result_t *const result = &of->results[number];
  char id[64];
  cts_case_id(&cts_cases[number], id);
  printf("FAIL     %s\n  rule     %s: %s\n  evidence %s\n", id, rule_id(result),
         result->rule < cts_rule_count ? cts_rules[result->rule].text : "", result->text);
  if (result->output[0]) printf("  output   %s\n", result->output);
}

/* Prints every case without a finding. */
static void put_cases(const cts_run_t *of) {
  char id[64];
  for (uint32_t i = 0; i < cts_case_count; i++) {
    const cts_result_t *const result = &of->results[i];
    if (result->verdict == CTS_NONE || result->verdict == CTS_FAIL) continue;
    cts_case_id(&cts_cases[i], id);
    printf("%-8s %s%s%s\n", cts_verdict_name(result->verdict), id, result->text[0] ? ": " : "", result->text);
  }
}

static void put_rows(const cts_run_t *of) {
  for (uint32_t i = 0; i < of->row_count; i++)
    printf("%s%s, %s: %s\n", tap ? "# " : "", of->rows[i].table, of->rows[i].name, of->rows[i].text);
}

static void put_verdict(const cts_run_t *of, const int verdicts[8]) {
  const char *const name = strrchr(of->path, '/') ? strrchr(of->path, '/') + 1 : of->path;
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%60s\r", "");
  if (verdicts[CTS_FAIL])
    printf("%s does not conform: %d finding%s\n", name, verdicts[CTS_FAIL], verdicts[CTS_FAIL] == 1 ? "" : "s");
  else if (of->absent)
    printf("%s was not exercised: its hardware is not here\n", name);
  else
    printf("%s conforms\n", name);
  for (uint32_t i = 0; i < cts_case_count; i++)
    if (of->results[i].verdict == CTS_FAIL) put_finding(of, i);
}

static void summarise(const cts_run_t *of) {
  cts_level_t levels[CTS_LEVELS];
  char next[512];
  int verdicts[8] = {0}, rules = 0;
  for (uint32_t i = 0; i < cts_case_count; i++) verdicts[of->results[i].verdict]++;
  for (uint32_t i = 0; i < cts_rule_count; i++) rules += of->rule_verdicts[i] == CTS_PASS;
  if (!tap) put_verdict(of, verdicts);
  if (verbose && !tap) put_cases(of);
  if (verbose || tap) put_rows(of);
  printf(
      "%s%d passed, %d failed, %d blocked, %d skipped, %d unsupported, %d expected failures; %d of %u sentences of the "
      "contract held\n",
      tap ? "# " : "", verdicts[CTS_PASS], verdicts[CTS_FAIL], verdicts[CTS_BLOCKED], verdicts[CTS_SKIP],
      verdicts[CTS_UNSUPPORTED], verdicts[CTS_XFAIL], rules, cts_rule_count);
  if (of->suite || of->only) return; /* levels need the whole suite */
  cts_levels(of, levels);
  for (int i = 0; i < CTS_LEVELS; i++)
    printf("%slevel %d, %s: %s%s%s\n", tap ? "# " : "", i + 1, levels[i].name, levels[i].state,
           levels[i].missing[0] ? ": " : "", levels[i].missing);
  cts_next(of, next, sizeof next);
  if (next[0]) printf("%snext: %s\n", tap ? "# " : "", next);
}

/* Reads lines "CASE reason"; a line without a reason, or with an unknown case, is an error. */
static int read_list(const char *path, cts_listed_t **out_list, size_t *out_count) {
  char line[LINE], known[64];
  FILE *const file = fopen(path, "re");
  if (!file) return fprintf(stderr, "hal-cts: %s cannot be read: %s\n", path, strerror(errno)), 0;
  cts_listed_t *const list = calloc(CTS_CASES_MAX, sizeof *list);
  size_t count = 0;
  int good = list != NULL;
  for (int number = 1; good && fgets(line, sizeof line, file); number++) {
    if (line[0] == '#' || line[strspn(line, " \t\n")] == '\0') continue;
    cts_listed_t *const row = &list[count++];
    good = count < CTS_CASES_MAX && sscanf(line, "%63s %255[^\n]", row->id, row->why) == 2;
    if (!good) fprintf(stderr, "hal-cts: %s:%d: write \"CASE reason\"\n", path, number);
    int found = 0;
    for (uint32_t i = 0; good && i < cts_case_count; i++)
      cts_case_id(&cts_cases[i], known), found |= strcmp(known, row->id) == 0;
    if (good && !found)
      good = 0, fprintf(stderr, "hal-cts: %s:%d: there is no case %s; see --list\n", path, number, row->id);
  }
  fclose(file);
  *out_list = list, *out_count = count;
  return good;
}

static int list_cases(void) {
  char id[64];
  for (uint32_t i = 0; i < cts_case_count; i++) {
    const uint32_t rule = cts_rule_find(cts_cases[i].slot, cts_cases[i].phrase);
    cts_case_id(&cts_cases[i], id);
    printf("%-32s %s%s%s\n", id, rule < cts_rule_count ? cts_rules[rule].id : "NO SUCH RULE",
           *cts_cases[i].depends ? "  after " : "", cts_cases[i].depends);
    if (rule == CTS_NO_RULE) return fprintf(stderr, "hal-cts: the phrase of %s is in no rule of the contract\n", id), 2;
  }
  return 0;
}

static int list_rules(void) {
  for (uint32_t i = 0; i < cts_rule_count; i++) printf("%s: %s\n", cts_rules[i].id, cts_rules[i].text);
  return 0;
}

static int read_number(const char *text, long least, long most, long *out_number) {
  char *end;
  errno = 0;
  *out_number = strtol(text, &end, 10);
  if (*text && !*end && !errno && *out_number >= least && *out_number <= most) return 1;
  return fprintf(stderr, "hal-cts: \"%s\" is not a number from %ld to %ld\n", text, least, most), 0;
}

static int is_suite(const char *name) {
  for (uint32_t i = 0; i < cts_case_count; i++)
    if (strcmp(cts_cases[i].suite, name) == 0) return 1;
  return fprintf(stderr, "hal-cts: there is no suite \"%s\"; see --list\n", name), 0;
}

static int is_case(const char *name) {
  char id[64];
  for (uint32_t i = 0; i < cts_case_count; i++) {
    cts_case_id(&cts_cases[i], id);
    if (strcmp(id, name) == 0) return 1;
  }
  return fprintf(stderr, "hal-cts: there is no case \"%s\"; see --list\n", name), 0;
}

static int is_setting(const char *text) {
  const char *const equals = strchr(text, '=');
  if (equals && equals != text && strlen(text) < 256) return 1;
  return fprintf(stderr, "hal-cts: --fault \"%s\" is not NAME=VALUE\n", text), 0;
}

/* Checks before the run that a report can be written after it. */
static int is_output(const char *path) {
  const char *const name = strrchr(path, '/');
  const int length = name ? (int)(name - path) : 0;
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%.*s", name ? (length ? length : 1) : 1, name ? path : ".");
  if (!access(folder, W_OK | X_OK)) return 1;
  return fprintf(stderr, "hal-cts: %s cannot be written: %s; create its folder, or choose another file\n", path,
                 strerror(errno)),
         0;
}

/* The options that are not settings of the run. */
typedef struct wish_s {
  const char *plugin, *html, *junit, *json;
  int list, rules, help;
} wish_t;

static const struct option options[] = {{"plugin", 1, 0, 'p'},   {"suite", 1, 0, 's'},       {"case", 1, 0, 'c'},
                                        {"device", 1, 0, 'd'},   {"list", 0, 0, 'l'},        {"rules", 0, 0, 'R'},
                                        {"report", 1, 0, 'r'},   {"junit", 1, 0, 'j'},       {"tap", 0, 0, 't'},
                                        {"limit", 1, 0, 'L'},    {"unsupported", 1, 0, 'u'}, {"xfail", 1, 0, 'x'},
                                        {"compiler", 1, 0, 'C'}, {"dialect", 1, 0, 'D'},     {"skip-code", 1, 0, 'k'},
                                        {"fault", 1, 0, 'f'},    {"stop", 0, 0, 'S'},        {"verbose", 0, 0, 'v'},
                                        {"json", 1, 0, 'J'},     {"help", 0, 0, 'h'},        {0, 0, 0, 0}};

/* Reads one option with its value in optarg; returns 0 if it is invalid, after an error message. */
static int read_option(int option, wish_t *wish) {
  long number = 0;
  int good = 1;
  switch (option) {
    case 'p':
      wish->plugin = optarg;
      break;
    case 's':
      run.suite = optarg, good = is_suite(optarg);
      break;
    case 'c':
      run.only = optarg, good = is_case(optarg);
      break;
    case 'd':
      good = read_number(optarg, 0, 1023, &number), run.device = (int32_t)number;
      break;
    case 'L':
      good = read_number(optarg, 1, 86400, &number), run.limit_s = (int)number;
      break;
    case 'k':
      good = read_number(optarg, 0, 125, &number), skip_code = (int)number;
      break;
    case 'r':
      wish->html = optarg, good = is_output(optarg);
      break;
    case 'j':
      wish->junit = optarg, good = is_output(optarg);
      break;
    case 'J':
      wish->json = optarg, good = is_output(optarg);
      break;
    case 'u':
      good = read_list(optarg, &run.unsupported, &run.unsupported_count);
      break;
    case 'x':
      good = read_list(optarg, &run.xfail, &run.xfail_count);
      break;
    case 'C':
      run.compiler = optarg;
      break;
    case 'D':
      run.dialect = optarg;
      break;
    case 'f':
      run.fault = optarg, good = is_setting(optarg);
      break;
    default:
      wish->list |= option == 'l', wish->rules |= option == 'R', wish->help |= option == 'h';
      tap |= option == 't', run.stop |= option == 'S', verbose |= option == 'v';
      good = option != '?';
  }
  return good;
}

int main(int argc, char **argv) {
  static char path[PATH_MAX];
  wish_t wish = {.plugin = NULL};
  int good = 1;
  run.limit_s = LIMIT_S;
  for (int option; good && (option = getopt_long(argc, argv, "h", options, NULL)) != -1;)
    good = read_option(option, &wish);
  if (good && wish.help) return fputs(usage, stdout), 0;
  if (good && wish.list) return list_cases();
  if (good && wish.rules) return list_rules();
  if (!good || !wish.plugin || optind != argc) return fputs(usage, stderr), 2;
  run.path = realpath(wish.plugin, path) ? path : wish.plugin; /* the loader reports an invalid path */
  run.page = mmap(NULL, sizeof *run.page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (run.page == MAP_FAILED) return fprintf(stderr, "hal-cts: no memory\n"), 2;
  const int findings = cts_run_all(&run, tell);
  if (tap) {
    int count = 0;
    for (uint32_t i = 0; i < cts_case_count; i++) count += run.results[i].verdict != CTS_NONE;
    printf("1..%d\n", count);
  }
  summarise(&run);
  if (wish.html && !cts_report_html(&run, wish.html)) return 2;
  if (wish.junit && !cts_report_junit(&run, wish.junit)) return 2;
  if (wish.json && !cts_report_json(&run, wish.json)) return 2;
  return findings ? 1 : run.loaded ? 0 : skip_code;
}
