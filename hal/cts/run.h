/* run.h: runs the cases and stores their results. Private to hal/cts. */
#ifndef HAL_CTS_RUN_H_
#define HAL_CTS_RUN_H_

#include <stdio.h>

#include "cts.h"

typedef struct cts_result_s {
  int verdict; /* CTS_* */
  uint32_t rule;
  double seconds;
  /* text: evidence; output: the last line that the child wrote to its standard error */
  char text[CTS_TEXT], output[CTS_TEXT];
} cts_result_t;

typedef struct cts_listed_s { /* a line of --unsupported or --xfail */
  char id[64], why[256];
  int used;
} cts_listed_t;

typedef struct cts_run_s {
  const char *path, *suite, *only, *fault, *compiler, *dialect;
  int32_t device;
  int limit_s, stop; /* stop: after the first finding */
  cts_listed_t *unsupported, *xfail;
  size_t unsupported_count, xfail_count;
  cts_page_t *page;
  cts_result_t results[CTS_CASES_MAX];
  uint8_t rule_verdicts[CTS_RULES_MAX]; /* the worst verdict of a case */
  int16_t rule_cases[CTS_RULES_MAX];    /* the case with that verdict, -1 */
  uint32_t calls[HAL_SLOT_COUNT];
  uint8_t provided[HAL_SLOT_COUNT];
  uint32_t row_count;
  cts_row_t rows[CTS_ROWS_MAX];
  cts_page_t about;   /* the page after the first load that worked */
  int loaded, absent; /* absent: there is no device here, load.starts was skipped */
} cts_run_t;

/* child.c: runs one case in a child process and fills `result`. */
void cts_run_case(cts_run_t *run, const cts_case_t *which, cts_result_t *result);
/* process.c, in the child: records the process state that the plugin must not change. */
void cts_process_remember(void);
/* Returns the first change that is not in `known`, with a text; 0 if there is none. */
uint32_t cts_process_changes(char *text, size_t size, uint32_t known);

/* run.c: runs all cases that were requested, in the order of the table, and returns the number of findings. */
int cts_run_all(cts_run_t *run, void (*tell)(const cts_run_t *run, uint32_t number));
void cts_case_id(const cts_case_t *which, char id[64]);
int cts_case_is_requested(const cts_run_t *run, const cts_case_t *which);
const char *cts_verdict_name(int verdict);
/* Returns why a rule has no verdict. */
const char *cts_rule_why_not(const cts_run_t *run, uint32_t rule, char *text, size_t size);

/* report.c, report_json.c: write a file; 0, after an error message, if it could not be written. */
int cts_report_html(const cts_run_t *run, const char *path);
int cts_report_junit(const cts_run_t *run, const char *path);
int cts_report_json(const cts_run_t *run, const char *path);
FILE *cts_report_open(const char *path);
int cts_report_close(FILE *file, const char *path);
/* levels.c: the levels of the porting guide, and the function to implement next. */
enum { CTS_LEVELS = 7 };
typedef struct cts_level_s {
  const char *name, *what;
  const char *state; /* "reached", "not reached", or "not judged": cases of it did not run */
  char missing[256]; /* functions to implement, or cases that failed */
} cts_level_t;
void cts_levels(const cts_run_t *run, cts_level_t levels[CTS_LEVELS]);
/* Writes the function to implement next, and its benefit; "" if there is none. */
void cts_next(const cts_run_t *run, char *text, size_t size);

#endif /* HAL_CTS_RUN_H_ */
