/* verdict.c: how a case ends, and the calls that must succeed. */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "cts.h"
#include "hal/status.h"

static _Atomic uint32_t judged = CTS_NO_RULE; /* by this process */

/* The first verdict stands: two threads of a case, or its two processes, may have a finding at once. */
static CTS_NORETURN void end_case(cts_t *t, int verdict, const char *format, va_list values) {
  static atomic_flag ending = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&ending))
    for (;;) pause();
  if (atomic_exchange(&t->page->ending, 1)) { /* the second process of the case was first */
    while (atomic_load(&t->page->verdict) == CTS_NONE) cts_nap();
    _exit(0);
  }
  char text[CTS_TEXT];
  vsnprintf(text, sizeof text, format, values);
  memcpy(t->page->text, text, sizeof text);
  t->page->verdict_rule = judged == CTS_NO_RULE ? atomic_load(&t->page->rule) : judged;
  atomic_store(&t->page->verdict, verdict);
  _exit(0);
}

void cts_fail(cts_t *t, const char *format, ...) {
  va_list values;
  va_start(values, format);
  end_case(t, CTS_FAIL, format, values);
}

void cts_skip(cts_t *t, const char *format, ...) {
  va_list values;
  va_start(values, format);
  end_case(t, CTS_SKIP, format, values);
}

void cts_row(cts_t *t, const char *table, const char *name, const char *format, ...) {
  va_list values;
  if (t->page->row_count == CTS_ROWS_MAX) return;
  cts_row_t *const row = &t->page->rows[t->page->row_count];
  snprintf(row->table, sizeof row->table, "%s", table);
  snprintf(row->name, sizeof row->name, "%s", name);
  va_start(values, format);
  vsnprintf(row->text, sizeof row->text, format, values);
  va_end(values);
  t->page->row_count++;
}

void cts_judge(cts_t *t, uint32_t slot, const char *phrase) {
  const uint32_t before = judged, rule = cts_rule_find(slot, phrase);
  if (before != CTS_NO_RULE) atomic_store(&t->page->held[before], 1);
  atomic_store(&t->page->rule, rule);
  judged = rule;
  if (rule == CTS_NO_RULE)
    cts_fail(t, "error of the suite: the contract of %s has no rule with \"%s\"", cts_slot_name(slot), phrase);
}

uint32_t cts_judged(void) { return judged; }

void cts_expect_ok(cts_t *t, uint32_t slot, hal_status_t status) {
  if (status == HAL_OK) return;
  const uint32_t rule = judged;
  if (rule == CTS_NO_RULE || cts_rules[rule].slot != slot)
    for (uint32_t i = cts_rule_count; i-- > 0;)
      if (cts_rules[i].slot == slot) judged = i; /* the first rule of the function: its purpose */
  cts_fail(t, "%s returned %s instead of HAL_OK: %s", cts_slot_name(slot), hal_status_name(status),
           hal_error_message());
}

void cts_expect(cts_t *t, uint32_t slot, hal_status_t status, hal_status_t expected) {
  if (status != expected)
    cts_fail(t, "%s returned %s instead of %s%s%s", cts_slot_name(slot), hal_status_name(status),
             hal_status_name(expected), status ? ": " : "", status ? hal_error_message() : "");
}

int cts_provides(const cts_t *t, uint32_t slot) { return t->page->provided[slot]; }

int cts_is_async(const cts_t *t) {
  return (t->info.flags & HAL_DEVICE_ASYNC) && CTS_PROVIDES(t, stream_create) && CTS_PROVIDES(t, stream_host_call);
}
