/* violation.c: static thread-local storage, which check_plugin.cmake refuses. */
int violation_count(void);
__attribute__((used)) int violation_count(void) {
  static _Thread_local int count __attribute__((tls_model("initial-exec")));
  return ++count;
}
