/* driver.c: the simulated driver: a queue is a thread with a list of commands. */
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 };

typedef struct command_s {
  struct command_s *next;
  void (*run)(const void *arguments);
  _Alignas(16) unsigned char arguments[];
} command_t;

struct driver_queue_s {
  pthread_t thread;
  pthread_mutex_t lock; /* guards all below */
  pthread_cond_t changed;
  command_t *first, **end;
  uint64_t pushed, finished;
  int stopped;
};

void *driver_allocate(size_t size) {
  const size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return rounded < size ? NULL : aligned_alloc(ALIGNMENT, rounded);
}

void driver_free(void *memory) { free(memory); }

static void *run_commands(void *data) {
  driver_queue_t *const queue = data;
  pthread_mutex_lock(&queue->lock);
  for (;;) {
    command_t *const command = queue->first;
    if (!command && queue->stopped) break;
    if (!command) {
      pthread_cond_wait(&queue->changed, &queue->lock);
      continue;
    }
    queue->first = command->next;
    if (!queue->first) queue->end = &queue->first;
    pthread_mutex_unlock(&queue->lock);
    command->run(command->arguments);
    free(command);
    pthread_mutex_lock(&queue->lock);
    queue->finished++;
    pthread_cond_broadcast(&queue->changed);
  }
  pthread_mutex_unlock(&queue->lock);
  return NULL;
}

driver_queue_t *driver_queue_create(void) {
  driver_queue_t *const queue = calloc(1, sizeof *queue);
  if (!queue) return NULL;
  queue->end = &queue->first;
  pthread_mutex_init(&queue->lock, NULL);
  pthread_cond_init(&queue->changed, NULL);
  if (pthread_create(&queue->thread, NULL, run_commands, queue) == 0) return queue;
  free(queue);
  return NULL;
}

void driver_queue_destroy(driver_queue_t *queue) {
  pthread_mutex_lock(&queue->lock);
  queue->stopped = 1;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->lock);
  pthread_join(queue->thread, NULL);
  pthread_cond_destroy(&queue->changed);
  pthread_mutex_destroy(&queue->lock);
  free(queue);
}

uint64_t driver_queue_push(driver_queue_t *queue, void (*run)(const void *), const void *arguments, size_t size) {
  command_t *const command = malloc(sizeof *command + size);
  if (!command) return 0;
  command->next = NULL, command->run = run;
  memcpy(command->arguments, arguments, size);
  pthread_mutex_lock(&queue->lock);
  *queue->end = command, queue->end = &command->next;
  const uint64_t number = ++queue->pushed;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->lock);
  return number;
}

uint64_t driver_queue_last(driver_queue_t *queue) {
  pthread_mutex_lock(&queue->lock);
  const uint64_t number = queue->pushed;
  pthread_mutex_unlock(&queue->lock);
  return number;
}

int driver_queue_reached(driver_queue_t *queue, uint64_t number) {
  pthread_mutex_lock(&queue->lock);
  const int reached = queue->finished >= number;
  pthread_mutex_unlock(&queue->lock);
  return reached;
}

void driver_queue_wait(driver_queue_t *queue, uint64_t number) {
  pthread_mutex_lock(&queue->lock);
  while (queue->finished < number) pthread_cond_wait(&queue->changed, &queue->lock);
  pthread_mutex_unlock(&queue->lock);
}

typedef struct matmul_s {
  const float *a, *b;
  float *c;
  int64_t m, k, n;
} matmul_t;

static void run_matmul(const void *arguments) {
  const matmul_t *const call = arguments;
  memset(call->c, 0, sizeof(float) * (size_t)(call->m * call->n));
  for (int64_t i = 0; i < call->m; i++)
    for (int64_t p = 0; p < call->k; p++)
      for (int64_t j = 0; j < call->n; j++)
        call->c[i * call->n + j] += call->a[i * call->k + p] * call->b[p * call->n + j];
}

int driver_matmul(driver_queue_t *queue, const float *a, const float *b, float *c, int64_t m, int64_t k, int64_t n) {
  const matmul_t call = {a, b, c, m, k, n};
  if (queue) return driver_queue_push(queue, run_matmul, &call, sizeof call) != 0;
  run_matmul(&call);
  return 1;
}
