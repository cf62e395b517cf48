/* plugin_process.h: for plugins that run a compiler: a process whose input, output and complaints are files in memory.
 * Linked from libhal_plugin.a into plugins that use it. */
#ifndef HAL_PLUGIN_PROCESS_H_
#define HAL_PLUGIN_PROCESS_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a file in memory, which the caller closes. -1: there is no memory; errno tells. Since 0.2. */
int hal_process_file(const char *name);

/* Writes to a file and goes back to its begin; 0 = there was no room. Since 0.2. */
int hal_process_write(int file, const void *data, size_t size);

/* Gives the bytes that a file has. Since 0.2. */
size_t hal_process_size(int file);

/* Splits `options` at spaces, in their own memory, and puts the words behind the `count` that are there. Returns how many there are then, -1: more
 * than `most`. Since 0.2. */
int hal_process_words(char *options, const char **words, int count, int most);

/* Runs a program, the first of `words`, which end with NULL; without a slash it is looked for on PATH, in a privileged process in /usr/bin. It reads and writes the files, and knows no
 * other; signals are as a new process has them. No shell, and no handler of fork runs. Waits for its end. Returns its exit status, -1 when it was
 * killed or never ran: `*out_error` is then the number of the error, or 0. Where the process ignores SIGCHLD nobody knows the status: it is 0, and
 * the files tell. Thread-safe. Since 0.2. */
int hal_process_run(const char *const *words, int in, int out, int log, int *out_error);

/* The same of a program for which somebody waits as long as `*cancelled` is 0 (hal_module_desc_t; NULL: always, and
 * this is hal_process_run). It and what it starts are a group of processes, so that the terminal's keys do not end
 * it; when it is cancelled, the group is asked to end, and a second later killed: -1, without an error. Since 0.2. */
int hal_process_run_wanted(const char *const *words, int in, int out, int log, const int32_t *cancelled,
                           int *out_error);

/* Gives what a program complained of, from its first line with "error" or "undefined reference" on, in so far as it fits. Since 0.2. */
void hal_process_log(int file, char *log, size_t room);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_PROCESS_H_ */
