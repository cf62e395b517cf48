/* plugin_process.h: for plugins that run a compiler: runs a process whose standard input, output and error are files in
 * memory. Linked from libhal_plugin.a into plugins that use it. */
#ifndef HAL_PLUGIN_PROCESS_H_
#define HAL_PLUGIN_PROCESS_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a file in memory, which the caller closes. Returns -1 if there is no memory, with the cause in errno. Since
 * 0.2. */
int hal_process_file(const char *name);

/* Writes to a file and sets its offset to the beginning. Returns 0 if there is no memory. Since 0.2. */
int hal_process_write(int file, const void *data, size_t size);

/* Returns the size of a file in bytes. Since 0.2. */
size_t hal_process_size(int file);

/* Splits `options` at spaces, in place, and appends the words to the `count` existing ones. Returns the new number of
 * words; -1 = more than `most`. Since 0.2. */
int hal_process_words(char *options, const char **words, int count, int most);

/* Runs a program, the first of `words`, which end with NULL. A name without a slash is searched on PATH, and in
 * /usr/bin by a privileged process. The program reads and writes the given files and has no others; its signal
 * dispositions are the defaults. No shell runs, and no handler of pthread_atfork. Waits for its end. Returns its exit
 * status, or -1 if it was killed or did not start: then `*out_error` is the error number, or 0. If the process ignores
 * SIGCHLD the status is unknown: the function returns 0, and the caller checks the files. Thread-safe. Since 0.2. */
int hal_process_run(const char *const *words, int in, int out, int log, int *out_error);

/* Runs a program that is cancelled when `*cancelled` becomes nonzero (hal_module_desc_t; NULL: never, as
 * hal_process_run). The program and its children are a process group, so that keys of the terminal do not end it.
 * Cancelling sends the group SIGTERM, and a second later SIGKILL; the function then returns -1 without an error. Since
 * 0.2. */
int hal_process_run_wanted(const char *const *words, int in, int out, int log, const int32_t *cancelled,
                           int *out_error);

/* Returns the error output of a program, from its first line with "error" or "undefined reference" on, cut at the size
 * of `log`. Since 0.2. */
void hal_process_log(int file, char *log, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_PROCESS_H_ */
