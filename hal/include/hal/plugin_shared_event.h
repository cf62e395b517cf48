/* plugin_shared_event.h: for plugins: interprocess events, for drivers that have none or whose events can be recorded
 * only once; and files that processes share, below. A record is a ticket in memory that both processes map. A host
 * function after the recorded work completes the ticket; a host function of the waiting stream returns then. Linked
 * from libhal_plugin.a into plugins that use it. Linux only.
 *
 *   hal_status_t hal_plugin_event_record(hal_plugin_event_t *event, hal_plugin_stream_t *stream) { uint64_t ticket =
 *   hal_shared_event_record(event->shared); ... queues a host function that calls
 *   hal_shared_event_complete(event->shared, ticket),
 *         or calls it here if that fails ...
 *   } */
#ifndef HAL_PLUGIN_SHARED_EVENT_H_
#define HAL_PLUGIN_SHARED_EVENT_H_

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An event of this process that others can open, or an event of another process. Reference-counted: creating or opening
 * it adds a reference. All functions are thread-safe. */
typedef struct hal_shared_event_s hal_shared_event_t;

/* Creates an event that is not recorded yet. `plugin`: a literal that begins messages. Released by
 * hal_shared_event_release. Errors: HAL_RESOURCE_EXHAUSTED = no memory or no file for it, with the cause in the
 * message. Since 0.2. */
hal_status_t hal_shared_event_make(const char *plugin, hal_shared_event_t **out_event);

/* Returns the handle with which another process of this user opens the event while this one exists, as event_ipc_export
 * does. Since 0.2, bytes 0.3. */
void hal_shared_event_export(const hal_shared_event_t *event, void *handle, size_t capacity, size_t *out_size);

/* Opens another process's event. Released by hal_shared_event_release. Errors: HAL_INVALID_ARGUMENT = an invalid
 * handle, or one of this process; HAL_NOT_FOUND = its process has ended, is of another user, or has released it;
 * HAL_RESOURCE_EXHAUSTED. Since 0.2, bytes 0.3. */
hal_status_t hal_shared_event_open(const char *plugin, const void *handle, size_t handle_size,
                                   hal_shared_event_t **out_event);

/* Adds a reference, for a queued host function that outlives the plugin's event. Since 0.2. */
void hal_shared_event_keep(hal_shared_event_t *event);

/* Releases a reference; the last one unmaps the memory. NULL is allowed. Since 0.2. */
void hal_shared_event_release(hal_shared_event_t *event);

/* Records the event: returns the ticket that all later waits, in all processes, wait for. The caller must complete each
 * ticket. Since 0.2. */
uint64_t hal_shared_event_record(hal_shared_event_t *event);

/* Completes a ticket: the work before that record is done. Waits if 64 earlier records are not done yet. Since 0.2. */
void hal_shared_event_complete(hal_shared_event_t *event, uint64_t ticket);

/* Returns the latest ticket that any process recorded; 0 = none. Since 0.2. */
uint64_t hal_shared_event_last(const hal_shared_event_t *event);

/* Returns whether the work of a ticket is done; ticket 0 is. Since 0.2. */
int hal_shared_event_done(const hal_shared_event_t *event, uint64_t ticket);

/* Waits until the work of a ticket is done. Errors: HAL_ABORTED = the process that recorded it has ended before. Since
 * 0.2. */
hal_status_t hal_shared_event_wait(const hal_shared_event_t *event, uint64_t ticket);

/* ---- files that processes share
 * --------------------------------------------------------------------------------------
 *
 * Memory that processes of one user share, as files without a name; the events above and the defaults of semaphores use
 * it. Another process opens a file by a handle, which holds the numbers of the process and of its file. A handle may
 * contain any numbers: a file is opened only if these functions created it, and if it is of this user, of the expected
 * kind and with the handle's nonce.
 *
 *   hal_shared_handle_t handle;
 *   int file = -1;
 *   hal_status_t status = hal_shared_file_create("acme", sizeof(page_t), &file, &handle);
 *   if (!status) page = hal_shared_file_map(file, sizeof(page_t));
 *
 * All functions are thread-safe. They set no error message: after a failure errno has the cause, 0 = none. */

enum { HAL_SHARED_KIND = 8, HAL_SHARED_NONCE = 16 };

/* How another process finds a file and identifies it. Export functions return its bytes. */
typedef struct hal_shared_handle_s {
  char kind[HAL_SHARED_KIND]; /* the kind of content; padded with zeros */
  int32_t process, file;
  unsigned char nonce[HAL_SHARED_NONCE];
} hal_shared_handle_t;

/* Creates a file of `size` > 0 bytes, all zero, whose size never changes. `kind`: at most 8 characters. `*out_file` is
 * closed by the caller; the handle is valid as long as the file is open. Errors: HAL_RESOURCE_EXHAUSTED. Since 0.4. */
hal_status_t hal_shared_file_create(const char *kind, size_t size, int *out_file, hal_shared_handle_t *out_handle);

/* Returns whether the bytes of a handle can be those of a file of this kind. `kind` as above. Since 0.4. */
int hal_shared_handle_is(const char *kind, const hal_shared_handle_t *handle);

/* Opens the file of a handle, of another process or of this one. `*out_size` is its size in bytes; the caller checks
 * it. `*out_file` is closed by the caller. No other file is opened, read or changed. Errors: HAL_INVALID_ARGUMENT = not
 * a handle of this kind; HAL_NOT_FOUND = the process or its file no longer exists, is of another user, or is another
 * file. Since 0.4. */
hal_status_t hal_shared_file_open(const char *kind, const hal_shared_handle_t *handle, int *out_file, size_t *out_size);

/* Returns the bytes that a mapping of a file of `size` bytes takes: whole pages. 0 = too large. Since 0.4. */
size_t hal_shared_file_pages(size_t size);

/* Maps a file of `size` bytes for reading and writing; unmapped by hal_shared_file_unmap. The file may be closed
 * afterwards. Returns NULL after a failure. Since 0.4. */
void *hal_shared_file_map(int file, size_t size);

/* Unmaps the memory of hal_shared_file_map; NULL is allowed. Since 0.4. */
void hal_shared_file_unmap(void *memory, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_SHARED_EVENT_H_ */
