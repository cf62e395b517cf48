/* opaque.h: memory of platforms whose programs do not compute in memory of the host (HAL_PJRT_MEMORY=opaque). Functions
 * return 0 or a status. After a failure `why`, PJRT_WHY bytes, has the reason. Any thread; an allocation is freed only
 * when no work uses it. */
#ifndef PLUGINS_PJRT_OPAQUE_H_
#define PLUGINS_PJRT_OPAQUE_H_

#include "pjrt.h"

/* A buffer of the platform that has the content of a part of an allocation. */
typedef struct opaque_version_s opaque_version_t;

/* Before a kernel of the host uses memory: the mirror of the whole allocation becomes its only content. Memory of the
 * host is ignored by all functions. */
hal_status_t pjrt_opaque_kernel(const void *address, char *why);

/* Before the host writes a part of an allocation, whose old content is not needed. */
hal_status_t pjrt_opaque_write(const void *address, size_t size, char *why);

/* Copies a part of an allocation, or memory of the host, to memory of the host. */
hal_status_t pjrt_opaque_read(void *to, const void *address, size_t size, char *why);

/* Finds or makes the version of a program's argument, which the caller releases. */
hal_status_t pjrt_opaque_argument(const pjrt_span_t *span, int32_t site, opaque_version_t **out_version, char *why);
void pjrt_opaque_release(opaque_version_t *version);
pjrt_buffer_t *pjrt_opaque_buffer(const opaque_version_t *version);

/* Before a program writes a result: removes the old versions. */
hal_status_t pjrt_opaque_claim(const pjrt_span_t *span, char *why);

/* Whether a program may donate an argument that was claimed: the caller is its only user. */
int pjrt_opaque_donates(const opaque_version_t *version);

/* Returns a claimed argument, which was not donated, to its memory. */
void pjrt_opaque_restore(const pjrt_span_t *span, opaque_version_t *version);

/* Makes a program's result, which the allocation owns from now on, the content of a part of it. */
hal_status_t pjrt_opaque_result(const pjrt_span_t *span, int32_t site, pjrt_buffer_t *buffer, char *why);

/* Runs a program, as pjrt_run. */
hal_status_t pjrt_opaque_run(const pjrt_run_t *run, char *why);

#endif /* PLUGINS_PJRT_OPAQUE_H_ */
