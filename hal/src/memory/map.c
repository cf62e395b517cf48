/* map.c: finds the block that contains an address. An intrusive treap keyed by address; `reach` makes it an interval
 * tree, since adopted ranges may overlap. The priority of a node is a hash of its record's address: no state, no
 * malloc. */
#include "memory/internal.h"

static uint64_t priority(const hal_block_t *block) {
  /* Fibonacci hashing (Knuth, TAOCP 6.4): multiplication by 2^64 over the golden ratio spreads the records' addresses.
   */
  return ((uintptr_t)block >> 6) * UINT64_C(0x9E3779B97F4A7C15);
}

/* The order of the keys; records with one address are ordered by their own addresses. */
static int before(const hal_block_t *a, const hal_block_t *b) {
  const uintptr_t x = (uintptr_t)a->address, y = (uintptr_t)b->address;
  return x != y ? x < y : (uintptr_t)a < (uintptr_t)b;
}

static void update(hal_block_t *node) {
  uintptr_t reach = (uintptr_t)node->address + node->extent;
  if (node->left && node->left->reach > reach) reach = node->left->reach;
  if (node->right && node->right->reach > reach) reach = node->right->reach;
  node->reach = reach;
}

/* Splits a tree into the nodes before `key` and the others. Depth: O(log n) expected. */
static void split(hal_block_t *root, const hal_block_t *key, hal_block_t **out_low, hal_block_t **out_high) {
  if (!root) {
    *out_low = *out_high = NULL;
  } else if (before(root, key)) {
    split(root->right, key, &root->right, out_high);
    *out_low = root;
    update(root);
  } else {
    split(root->left, key, out_low, &root->left);
    *out_high = root;
    update(root);
  }
}

/* Joins two trees; all nodes of `low` are before those of `high`. */
static hal_block_t *join(hal_block_t *low, hal_block_t *high) {
  if (!low) return high;
  if (!high) return low;
  if (priority(low) > priority(high)) {
    low->right = join(low->right, high);
    update(low);
    return low;
  }
  high->left = join(low, high->left);
  update(high);
  return high;
}

static hal_block_t *insert(hal_block_t *root, hal_block_t *block) {
  if (!root || priority(block) > priority(root)) {
    split(root, block, &block->left, &block->right);
    root = block;
  } else if (before(block, root)) {
    root->left = insert(root->left, block);
  } else {
    root->right = insert(root->right, block);
  }
  update(root);
  return root;
}

static hal_block_t *take(hal_block_t *root, const hal_block_t *block) {
  if (root == block) return join(root->left, root->right);
  if (before(block, root)) {
    root->left = take(root->left, block);
  } else {
    root->right = take(root->right, block);
  }
  update(root);
  return root;
}

void hal_mem_map_insert(hal_block_t **root, hal_block_t *block, size_t extent) {
  block->left = block->right = NULL;
  block->extent = extent;
  *root = insert(*root, block);
}

void hal_mem_map_remove(hal_block_t **root, hal_block_t *block) {
  *root = take(*root, block);
  block->extent = 0;
}

hal_block_t *hal_mem_map_find(hal_block_t *root, uintptr_t address) {
  while (root && root->reach > address) {
    if (root->left && root->left->reach > address) {
      /* A range in the left subtree ends after the address. If none there contains it, all of them begin after it, and
       * so do all other ranges. */
      root = root->left;
    } else if ((uintptr_t)root->address <= address && address - (uintptr_t)root->address < root->extent) {
      return root;
    } else {
      root = root->right;
    }
  }
  return NULL;
}
