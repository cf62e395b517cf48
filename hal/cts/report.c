/* report.c: writes the results as HTML, with the verdict on every rule of the contract, and as JUnit XML. */
#include <errno.h>
#include <stdio.h>

#include "run.h"

/* Writes text with markup escaped; control characters, which XML forbids, become spaces. */
static void put_text(FILE *file, const char *text) {
  for (; *text; text++) switch (*text) {
      case '&':
        fputs("&amp;", file);
        break;
      case '<':
        fputs("&lt;", file);
        break;
      case '>':
        fputs("&gt;", file);
        break;
      case '"':
        fputs("&quot;", file);
        break;
      default:
        fputc((unsigned char)*text < ' ' || (unsigned char)*text > '~' ? ' ' : *text, file);
    }
}

int cts_report_close(FILE *file, const char *path) {
  const int failed = ferror(file);
  if (fclose(file) == 0 && !failed) return 1;
  return fprintf(stderr, "hal-cts: %s cannot be written: %s\n", path, strerror(errno)), 0;
}

FILE *cts_report_open(const char *path) {
  FILE *const file = fopen(path, "we");
  if (!file) fprintf(stderr, "hal-cts: %s cannot be written: %s\n", path, strerror(errno));
  return file;
}

static void put_cell(FILE *file, const char *text) {
  fputs("<td>", file);
  put_text(file, text);
  fputs("</td>", file);
}

static void put_cases(FILE *file, const cts_run_t *run) {
  char id[64];
  fputs("<h2>Cases</h2>\n<table><tr><th>case<th>verdict<th>rule<th>evidence<th>seconds</tr>\n", file);
  for (uint32_t i = 0; i < cts_case_count; i++) {
    const cts_result_t *const result = &run->results[i];
    if (result->verdict == CTS_NONE) continue;
    cts_case_id(&cts_cases[i], id);
    fprintf(file, "<tr class=\"v%d\">", result->verdict);
    put_cell(file, id);
    put_cell(file, cts_verdict_name(result->verdict));
    put_cell(file, result->rule < cts_rule_count ? cts_rules[result->rule].id : "");
    put_cell(file, result->text);
    fprintf(file, "<td>%.2f</td></tr>\n", result->seconds);
  }
  fputs("</table>\n", file);
}

static void put_rules(FILE *file, const cts_run_t *run) {
  char id[64], text[128];
  fputs("<h2>Contract</h2>\n<table><tr><th>rule<th>sentence<th>verdict<th>evidence</tr>\n", file);
  for (uint32_t i = 0; i < cts_rule_count; i++) {
    const int verdict = run->rule_verdicts[i], number = run->rule_cases[i];
    fprintf(file, "<tr class=\"v%d\">", verdict);
    put_cell(file, cts_rules[i].id);
    put_cell(file, cts_rules[i].text);
    put_cell(file, cts_verdict_name(verdict));
    if (number >= 0) {
      cts_case_id(&cts_cases[number], id);
      fputs("<td>", file);
      put_text(file, id);
      fputs(" ", file);
      put_text(file, verdict == CTS_PASS ? "" : run->results[number].text);
      fputs("</td></tr>\n", file);
    } else {
      put_cell(file, cts_rule_why_not(run, i, text, sizeof text));
      fputs("</tr>\n", file);
    }
  }
  fputs("</table>\n", file);
}

/* One table for all rows of one kind; the rows of a kind are in no particular order. */
static void put_rows(FILE *file, const cts_run_t *run, const char *table, const char *title) {
  int any = 0;
  for (uint32_t i = 0; i < run->row_count; i++) {
    if (strcmp(run->rows[i].table, table)) continue;
    if (!any) fprintf(file, "<h2>%s</h2>\n<table>\n", title);
    any = 1;
    fputs("<tr>", file);
    put_cell(file, run->rows[i].name);
    put_cell(file, run->rows[i].text);
    fputs("</tr>\n", file);
  }
  if (any) fputs("</table>\n", file);
}

static void put_levels(FILE *file, const cts_run_t *run) {
  cts_level_t levels[CTS_LEVELS];
  char next[512];
  cts_levels(run, levels);
  cts_next(run, next, sizeof next);
  fputs("<h2>Levels</h2>\n<table><tr><th>level<th>result<th>missing</tr>\n", file);
  for (int i = 0; i < CTS_LEVELS; i++) {
    fputs("<tr>", file);
    put_cell(file, levels[i].name);
    put_cell(file, levels[i].state);
    put_cell(file, levels[i].missing);
    fputs("</tr>\n", file);
  }
  fputs("</table>\n<p>Next: ", file);
  put_text(file, next[0] ? next : "nothing of what the host uses today is missing");
  fputs("</p>\n", file);
}

int cts_report_html(const cts_run_t *run, const char *path) {
  int score = 0, findings = 0;
  FILE *const file = cts_report_open(path);
  if (!file) return 0;
  for (uint32_t i = 0; i < cts_rule_count; i++) score += run->rule_verdicts[i] == CTS_PASS;
  for (uint32_t i = 0; i < cts_case_count; i++) findings += run->results[i].verdict == CTS_FAIL;
  fputs(
      "<!DOCTYPE html>\n<meta charset=\"utf-8\"><title>hal-cts</title>\n<style>body{font-family:sans-serif;margin:2em}"
      "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .5em;text-align:left;vertical-align:top}"
      ".v1{background:#e8f5e9}.v2{background:#ffcdd2}.v4{background:#ffe0b2}.v5{background:#fff9c4}</"
      "style>\n<h1>Conformance of ",
      file);
  put_text(file, run->loaded ? run->about.name : run->path);
  fputs("</h1>\n<p>", file);
  put_text(file, run->path);
  fputs(", version ", file);
  put_text(file, run->about.version);
  fputs(", device ", file);
  put_text(file, run->about.device_name);
  fprintf(file, "</p>\n<p>%d findings; %d of %u sentences of the contract held.</p>\n", findings, score,
          cts_rule_count);
  put_levels(file, run);
  put_rows(file, run, "figure", "Measurements (of this machine at this time; they do not affect a verdict)");
  put_rows(file, run, "operator", "Operators of the plugin's own");
  put_rows(file, run, "speed", "Time of operators of the plugin's own, float32");
  put_cases(file, run);
  put_rules(file, run);
  return cts_report_close(file, path);
}

int cts_report_junit(const cts_run_t *run, const char *path) {
  int counts[8] = {0}, all = 0;
  FILE *const file = cts_report_open(path);
  if (!file) return 0;
  for (uint32_t i = 0; i < cts_case_count; i++)
    counts[run->results[i].verdict]++, all += run->results[i].verdict != CTS_NONE;
  fprintf(file,
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"hal-cts\" tests=\"%d\" failures=\"%d\" "
          "skipped=\"%d\">\n",
          all, counts[CTS_FAIL], all - counts[CTS_FAIL] - counts[CTS_PASS]);
  for (uint32_t i = 0; i < cts_case_count; i++) {
    const cts_result_t *const result = &run->results[i];
    if (result->verdict == CTS_NONE) continue;
    fprintf(file, "<testcase classname=\"hal-cts.%s\" name=\"%s\" time=\"%.3f\">", cts_cases[i].suite,
            cts_cases[i].name, result->seconds);
    if (result->verdict != CTS_PASS) {
      fprintf(file, "<%s message=\"", result->verdict == CTS_FAIL ? "failure" : "skipped");
      if (result->rule < cts_rule_count) fprintf(file, "%s: ", cts_rules[result->rule].id);
      put_text(file, result->text);
      fputs("\"/>", file);
    }
    fputs("</testcase>\n", file);
  }
  fputs("</testsuite>\n", file);
  return cts_report_close(file, path);
}
