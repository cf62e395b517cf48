/* report_json.c: writes the results as JSON, for programs that compare runs (`torch-backend verify --diff`). */
#include <stdio.h>

#include "run.h"

/* The number of the file's layout: members are only added to one layout. */
enum { CTS_JSON_LAYOUT = 1 };

/* Writes a string literal. Bytes that are not printable ASCII become spaces, as in the other reports. */
static void put_string(FILE *file, const char *text) {
  fputc('"', file);
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') fputc('\\', file);
    fputc((unsigned char)*text < ' ' || (unsigned char)*text > '~' ? ' ' : *text, file);
  }
  fputc('"', file);
}

/* Writes `"name": "text"`, after a comma unless it is the first member. */
static void put_member(FILE *file, int first, const char *name, const char *text) {
  fputs(first ? "" : ", ", file);
  put_string(file, name);
  fputs(": ", file);
  put_string(file, text);
}

static void put_about(FILE *file, const cts_run_t *run) {
  fprintf(file, "{\n  \"layout\": %d,\n  \"program\": \"hal-cts\",\n  \"plugin\": {", CTS_JSON_LAYOUT);
  put_member(file, 1, "path", run->path);
  put_member(file, 0, "name", run->about.name);
  put_member(file, 0, "version", run->about.version);
  put_member(file, 0, "device", run->about.device_name);
  fputs("},\n  \"selected\": {", file);
  put_member(file, 1, "suite", run->suite ? run->suite : "");
  put_member(file, 0, "case", run->only ? run->only : "");
  fputs("},\n", file);
}

static void put_cases(FILE *file, const cts_run_t *run) {
  const char *comma = "";
  char id[64];
  fputs("  \"cases\": {", file);
  for (uint32_t i = 0; i < cts_case_count; i++) {
    const cts_result_t *const result = &run->results[i];
    if (result->verdict == CTS_NONE) continue;
    cts_case_id(&cts_cases[i], id);
    fprintf(file, "%s\n    \"%s\": {", comma, id);
    put_member(file, 1, "verdict", cts_verdict_name(result->verdict));
    put_member(file, 0, "rule", result->rule < cts_rule_count ? cts_rules[result->rule].id : "");
    put_member(file, 0, "evidence", result->text);
    fprintf(file, ", \"seconds\": %.3f}", result->seconds);
    comma = ",";
  }
  fputs("\n  },\n", file);
}

static void put_levels(FILE *file, const cts_run_t *run) {
  cts_level_t levels[CTS_LEVELS];
  const int whole = !run->suite && !run->only; /* levels need the whole suite */
  cts_levels(run, levels);
  fputs("  \"levels\": [", file);
  for (int i = 0; whole && i < CTS_LEVELS; i++) {
    fputs(i ? ",\n    {" : "\n    {", file);
    put_member(file, 1, "name", levels[i].name);
    put_member(file, 0, "state", levels[i].state);
    put_member(file, 0, "missing", levels[i].missing);
    fputs("}", file);
  }
  fputs(whole ? "\n  ],\n" : "],\n", file);
}

static void put_rows(FILE *file, const cts_run_t *run) {
  fputs("  \"rows\": [", file);
  for (uint32_t i = 0; i < run->row_count; i++) {
    fputs(i ? ",\n    {" : "\n    {", file);
    put_member(file, 1, "table", run->rows[i].table);
    put_member(file, 0, "name", run->rows[i].name);
    put_member(file, 0, "text", run->rows[i].text);
    fputs("}", file);
  }
  fputs(run->row_count ? "\n  ]\n}\n" : "]\n}\n", file);
}

int cts_report_json(const cts_run_t *run, const char *path) {
  FILE *const file = cts_report_open(path);
  if (!file) return 0;
  put_about(file, run);
  put_cases(file, run);
  put_levels(file, run);
  put_rows(file, run);
  return cts_report_close(file, path);
}
