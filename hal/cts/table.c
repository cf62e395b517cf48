/* table.c: the tables of rules and cases, and searches from one to the other. */
#include "cts.h"
#include "hal/registry.h"

const cts_rule_t cts_rules[] = {
#define CTS_RULE(id, slot, text) {id, slot, text},
#include "hal_cts_rules.inc"
#undef CTS_RULE
};
const uint32_t cts_rule_count = sizeof cts_rules / sizeof cts_rules[0];
_Static_assert(sizeof cts_rules / sizeof cts_rules[0] <= CTS_RULES_MAX, "the page has memory for every rule");

const cts_case_t cts_cases[] = {
#define CTS_CASE(suite, name, slot, phrase, depends, needs) \
  {#suite, #name, HAL_SLOT_##slot, phrase, depends, needs, cts_case_##suite##_##name},
#include "cases.def"
#undef CTS_CASE
};
const uint32_t cts_case_count = sizeof cts_cases / sizeof cts_cases[0];
_Static_assert(sizeof cts_cases / sizeof cts_cases[0] <= CTS_CASES_MAX, "the run has memory for every case");

uint32_t cts_rule_find(uint32_t slot, const char *phrase) {
  uint32_t found = CTS_NO_RULE;
  for (uint32_t i = 0; i < cts_rule_count; i++) {
    if (cts_rules[i].slot != slot || !strstr(cts_rules[i].text, phrase)) continue;
    if (found == CTS_NO_RULE) found = i;
  }
  return found;
}

const char *const cts_operators[] = {
#define CTS_OPERATOR(name) name,
#include "hal_cts_operators.inc"
#undef CTS_OPERATOR
};
const uint32_t cts_operator_count = sizeof cts_operators / sizeof cts_operators[0];

uint32_t cts_operator_number(const char *name) {
  uint32_t number = 0;
  while (number < cts_operator_count && strcmp(cts_operators[number], name)) number++;
  return number;
}

const char *cts_slot_name(uint32_t slot) {
  return slot < HAL_SLOT_COUNT ? hal_registry_slot_name(slot) : "no function";
}
