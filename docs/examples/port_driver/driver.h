/* driver.h: the driver of an imaginary accelerator. A vendor has such a library; this one computes on host threads. */
#ifndef PORT_DRIVER_DRIVER_H_
#define PORT_DRIVER_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

typedef struct driver_queue_s driver_queue_t;

/* Memory of the device. Returns NULL if none is left. */
void *driver_allocate(size_t size);
void driver_free(void *memory);

/* A queue runs its commands in order, asynchronously. */
driver_queue_t *driver_queue_create(void);
void driver_queue_destroy(driver_queue_t *queue); /* finishes its commands */

/* Queues a command, which receives a copy of `size` bytes at `arguments`. Returns its number; 0 = no host memory. */
uint64_t driver_queue_push(driver_queue_t *queue, void (*run)(const void *arguments), const void *arguments,
                           size_t size);
uint64_t driver_queue_last(driver_queue_t *queue);                /* number of the last command */
int driver_queue_reached(driver_queue_t *queue, uint64_t number); /* whether that command has finished */
void driver_queue_wait(driver_queue_t *queue, uint64_t number);

/* c = a * b, for dense float matrices of m x k, k x n and m x n elements. A NULL queue: finished on return.
 * Returns 0 on failure. */
int driver_matmul(driver_queue_t *queue, const float *a, const float *b, float *c, int64_t m, int64_t k, int64_t n);

#endif /* PORT_DRIVER_DRIVER_H_ */
