/* run.c: runs the cases one after another, with their dependencies, and determines the verdict on each rule. */
#include "run.h"

#include <stdio.h>

const char *cts_verdict_name(int verdict) {
  static const char *const names[] = {"not exercised", "pass", "FAIL", "skip", "blocked", "xfail", "unsupported"};
  return names[verdict];
}

void cts_case_id(const cts_case_t *which, char id[64]) { snprintf(id, 64, "%s.%s", which->suite, which->name); }

int cts_case_is_requested(const cts_run_t *run, const cts_case_t *which) {
  char id[64];
  cts_case_id(which, id);
  if (run->only) return strcmp(run->only, id) == 0;
  return !run->suite || strcmp(run->suite, which->suite) == 0;
}

static cts_listed_t *find_listed(cts_listed_t *list, size_t count, const char *id) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(list[i].id, id) == 0) return list[i].used = 1, &list[i];
  return NULL;
}

/* Returns the case among `depends` that failed or is blocked itself, -1 if none. */
static int find_blocker(const cts_run_t *run, const char *depends) {
  char id[64];
  for (uint32_t i = 0; i < cts_case_count; i++) {
    cts_case_id(&cts_cases[i], id);
    const size_t length = strlen(id);
    const char *at = depends;
    while ((at = strstr(at, id))) {
      const int whole = (at == depends || at[-1] == ' ') && (at[length] == ' ' || !at[length]);
      const int verdict = run->results[i].verdict;
      if (whole && (verdict == CTS_FAIL || verdict == CTS_BLOCKED || verdict == CTS_XFAIL)) return (int)i;
      at += length;
    }
  }
  return -1;
}

/* A rule that one case found broken stays broken; a rule that one case could not test may be tested by another. */
static void note_rule(cts_run_t *run, uint32_t rule, int verdict, uint32_t number) {
  static const int weight[] = {0, 3, 5, 1, 2, 4, 1};
  if (rule >= cts_rule_count || weight[verdict] <= weight[run->rule_verdicts[rule]]) return;
  run->rule_verdicts[rule] = (uint8_t)verdict;
  run->rule_cases[rule] = (int16_t)number;
}

static void note(cts_run_t *run, uint32_t number) {
  const cts_case_t *const which = &cts_cases[number];
  const cts_result_t *const result = &run->results[number];
  for (uint32_t rule = 0; rule < cts_rule_count; rule++)
    if (atomic_load(&run->page->held[rule])) note_rule(run, rule, CTS_PASS, number);
  note_rule(run, result->verdict == CTS_SKIP ? cts_rule_find(which->slot, which->phrase) : result->rule,
            result->verdict, number);
  for (uint32_t slot = 0; slot < HAL_SLOT_COUNT; slot++) {
    run->calls[slot] += atomic_load(&run->page->calls[slot]);
    run->provided[slot] |= run->page->provided[slot];
  }
  for (uint32_t i = 0; i < run->page->row_count && run->row_count < CTS_ROWS_MAX; i++)
    run->rows[run->row_count++] = run->page->rows[i];
  if (!run->loaded && run->page->device_name[0]) memcpy(&run->about, run->page, sizeof run->about), run->loaded = 1;
}

static void apply_lists(cts_run_t *run, const char *id, cts_result_t *result) {
  const cts_listed_t *const expected = find_listed(run->xfail, run->xfail_count, id);
  if (!expected) return;
  char text[CTS_TEXT];
  memcpy(text, result->text, sizeof text);
  if (result->verdict == CTS_FAIL) {
    result->verdict = CTS_XFAIL;
    snprintf(result->text, sizeof result->text, "expected (%s): %.700s", expected->why, text);
  } else if (result->verdict == CTS_PASS) {
    result->verdict = CTS_FAIL;
    snprintf(result->text, sizeof result->text,
             "it passes, though the list of expected failures names it (%s): remove the line", expected->why);
  }
}

int cts_run_all(cts_run_t *run, void (*tell)(const cts_run_t *run, uint32_t number)) {
  int findings = 0;
  char id[64], other[64];
  memset(run->rule_cases, -1, sizeof run->rule_cases);
  for (uint32_t i = 0; i < cts_case_count && !(run->stop && findings); i++) {
    const cts_case_t *const which = &cts_cases[i];
    cts_result_t *const result = &run->results[i];
    cts_case_id(which, id);
    const int loads = strcmp(which->suite, "load") == 0; /* all cases depend on it, whatever was requested */
    if (!cts_case_is_requested(run, which) && !loads) continue;
    const cts_listed_t *const unsupported = find_listed(run->unsupported, run->unsupported_count, id);
    const int blocker = find_blocker(run, which->depends);
    result->rule = cts_rule_find(which->slot, which->phrase);
    if (unsupported) {
      result->verdict = CTS_UNSUPPORTED;
      snprintf(result->text, sizeof result->text, "%s", unsupported->why);
      note_rule(run, result->rule, CTS_UNSUPPORTED, i);
    } else if (run->absent) {
      result->verdict = CTS_SKIP;
      snprintf(result->text, sizeof result->text, "load.starts was skipped");
      note_rule(run, result->rule, CTS_SKIP, i);
    } else if (blocker >= 0) {
      cts_case_id(&cts_cases[blocker], other);
      result->verdict = CTS_BLOCKED;
      snprintf(result->text, sizeof result->text, "%s %s", other,
               run->results[blocker].verdict == CTS_BLOCKED ? "is blocked" : "failed");
      note_rule(run, result->rule, CTS_BLOCKED, i);
    } else {
      cts_run_case(run, which, result);
      apply_lists(run, id, result);
      note(run, i);
      run->absent |= result->verdict == CTS_SKIP && strcmp(id, "load.starts") == 0;
    }
    findings += result->verdict == CTS_FAIL;
    tell(run, i);
  }
  return findings;
}

/* Phrases of rules for the caller: the suite is the caller, so no plugin can break them. */
static int binds_the_host(const char *text) {
  static const char *const words[] = {"The host ",
                                      "the host ",
                                      "`flags` is zero",
                                      "called once per process",
                                      "called at most once",
                                      "A process may end",
                                      "must stay valid",
                                      "ranges do not overlap",
                                      "`size` is a multiple",
                                      "nothing may be mapped",
                                      "it must not be mapped",
                                      "must not call the HAL",
                                      "Called once per device",
                                      "calls no profile_",
                                      "no longer queued",
                                      "A launch passes",
                                      "the host's own launches",
                                      "How a launch runs",
                                      "device memory contain no addresses",
                                      "A kernel over a list",
                                      "A caller that needs an order",
                                      "`device` is the plugin's own",
                                      "A reader ignores",
                                      "Reserved fields are zero",
                                      "there is no current device",
                                      "Device and stream are explicit",
                                      "Every op returns",
                                      "The interface has no bool"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strstr(text, words[i])) return 1;
  return 0;
}

const char *cts_rule_why_not(const cts_run_t *run, uint32_t rule, char *text, size_t size) {
  const uint32_t slot = cts_rules[rule].slot;
  if (strncmp(cts_rules[rule].text, "Default:", 8) == 0)
    return "the archive's default for plugins that do not implement it; tested with the archive";
  if (binds_the_host(cts_rules[rule].text)) return "a rule for the host, or a consequence of the headers' types";
  if (slot < HAL_SLOT_COUNT && !run->provided[slot])
    snprintf(text, size, "the plugin does not provide %s", cts_slot_name(slot));
  else
    snprintf(text, size, "no case of the suite tests this rule");
  return text;
}
