// attention_varlen.cpp: attention of sequences that are packed one after another (torch.nn.attention.varlen), for
// devices whose plugin has no such operator: one call of the device's attention for each sequence. The host reads the
// lengths.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "aten/attention/attention.h"

namespace torch_backend {
namespace {

using at::Tensor;
using Lengths = std::vector<int64_t>;

// The options of a call that decide which keys a query is compared with. Of the window, -1 is no limit.
struct Window {
  int64_t left, right;
};

Window window_of(bool causal, std::optional<c10::SymInt> left, std::optional<c10::SymInt> right) {
  const Window given{left ? left->expect_int() : -1, right ? right->expect_int() : -1};
  return causal ? Window{given.left, 0} : given;
}

Lengths read(const Tensor &numbers) {
  const Tensor host = numbers.to(c10::TensorOptions(c10::kCPU).dtype(at::kLong)).contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

// Reads where each sequence begins, and the end of the last one.
Lengths bounds_of(const char *name, const OptionalTensor &cumulative, int64_t rows) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_given(cumulative), "_flash_attention_forward: ", name,
                              " is missing: call scaled_dot_product_attention for sequences of one length");
  Lengths bounds = read(*cumulative);
  TORCH_CHECK(
      !bounds.empty() && bounds.front() == 0 && bounds.back() <= rows && std::is_sorted(bounds.begin(), bounds.end()),
      "_flash_attention_forward: ", name, " is ", bounds, "; expected increasing numbers from 0 to ", rows,
      ", without gaps between sequences (contiguous() removes those of a jagged tensor)");
  return bounds;
}

// Reads how many keys of each sequence are used.
Lengths used_of(const OptionalTensor &numbers, const Lengths &keys, int64_t pages) {
  if (!is_given(numbers)) return {};
  Lengths used = read(*numbers);
  for (size_t i = 0; i < used.size() && (pages || i + 1 < keys.size()); i++) {
    const int64_t most = pages ? pages : keys[i + 1] - keys[i];
    TORCH_CHECK(used[i] >= 0 && used[i] <= most, "_flash_attention_forward: seqused_k[", i, "] is ", used[i],
                "; expected a number of keys in [0, ", most, "]");
  }
  return used;
}

// Seed and offset of the dropout mask of a sequence. The masks of all sequences follow one another.
struct Masks {
  int64_t seed = 0, offset = 0;
  bool begun = false;

  // Advances to the next sequence after a call with its own state, which must be that of this sequence.
  void follow(const Tensor &of_seed, const Tensor &of_offset, int64_t weights, Masks &first) {
    const int64_t its_seed = of_seed.item<int64_t>(), its_offset = of_offset.item<int64_t>();
    if (!begun) first = *this = {its_seed, its_offset, true};
    TORCH_CHECK_NOT_IMPLEMENTED(its_seed == seed && its_offset == offset,
                                "_flash_attention_forward: dropout is not supported with the plugin's own attention, "
                                "whose masks do not follow one another");
    advance(weights);
  }
  void advance(int64_t weights) { offset += (weights + 3) / 4; /* as reserve_words */ }
};

Tensor saved(const Masks &masks, const Tensor &like) {
  return at::tensor({masks.seed, masks.offset}, at::kLong).view(at::kUInt64).to(like.device());
}

// Keys or values: rows of packed sequences, or pages that a table assigns to sequences.
struct Rows {
  const Tensor &packed;
  const OptionalTensor &pages;

  Tensor of(size_t sequence, int64_t begin, int64_t length) const {
    if (!is_given(pages)) return packed.narrow(0, begin, length);
    const int64_t page = packed.size(1), count = (length + page - 1) / page;
    return packed.index_select(0, pages->select(0, static_cast<int64_t>(sequence)).narrow(0, 0, count))
        .flatten(0, 1)
        .narrow(0, 0, length);
  }
};

// (row, head, number) as (1, head, row, number).
Tensor by_head(const Tensor &rows) { return rows.transpose(0, 1).unsqueeze(0); }
Tensor by_row(const Tensor &heads) { return heads.squeeze(0).transpose(0, 1); }

// Returns 0 for the keys of a query's window, else -infinity; undefined = all keys. The last query and the last key
// have one position.
OptionalTensor bias_of(const Tensor &query, int64_t queries, int64_t keys, Window window) {
  if (window.left < 0 && window.right < 0) return std::nullopt;
  const auto options = query.options().dtype(at::kLong);
  const Tensor places = at::arange(queries, options).add(keys - queries).unsqueeze(1);
  const Tensor distance = at::arange(keys, options).sub(places);
  Tensor bias = at::zeros({queries, keys}, query.options());
  if (window.left >= 0) bias.masked_fill_(distance.lt(-window.left), -INFINITY);
  if (window.right >= 0) bias.masked_fill_(distance.gt(window.right), -INFINITY);
  return bias;
}

// The sequences of a call. `use` receives the number of a sequence, the first query and the number of queries, and the
// first key and the number of keys.
template <typename Use>
void for_each_sequence(const Lengths &queries, const Lengths &keys, const Lengths &used, bool paged, Use use) {
  for (size_t i = 0; i + 1 < queries.size(); i++) {
    int64_t length = paged ? used[i] : keys[i + 1] - keys[i];
    if (!used.empty()) length = std::min(length, used[i]);
    use(i, queries[i], queries[i + 1] - queries[i], paged ? 0 : keys[i], length);
  }
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

Forward varlen_attention(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &cum_seq_q,
                         const OptionalTensor &cum_seq_k, c10::SymInt, c10::SymInt, double dropout, bool causal, bool,
                         std::optional<double> scale, std::optional<c10::SymInt> left, std::optional<c10::SymInt> right,
                         const OptionalTensor &seqused_k, const OptionalTensor &alibi_slopes,
                         const OptionalTensor &block_table, std::optional<int64_t>) {
  const bool paged = is_given(block_table);
  TORCH_CHECK_NOT_IMPLEMENTED(!is_given(alibi_slopes), "_flash_attention_forward: alibi_slopes are not supported on '",
                              kDevice, "'");
  TORCH_CHECK(query.dim() == 3 && key.dim() == (paged ? 4 : 3) && (!paged || is_given(seqused_k)),
              "_flash_attention_forward: expected a query of 3 dimensions, keys of 3, and with a block_table keys of 4 "
              "and seqused_k; got ",
              query.dim(), " and ", key.dim(), " dimensions");
  const Lengths queries = bounds_of("cum_seq_q", cum_seq_q, query.size(0));
  const Lengths keys = paged ? Lengths() : bounds_of("cum_seq_k", cum_seq_k, key.size(0));
  const Lengths used = used_of(seqused_k, keys, paged ? block_table->size(-1) * key.size(1) : 0);
  TORCH_CHECK((paged || keys.size() == queries.size()) && (used.empty() || used.size() + 1 == queries.size()),
              "_flash_attention_forward: cum_seq_q has ", queries.size(), " numbers, cum_seq_k ", keys.size(),
              ", seqused_k ", used.size());
  const Window window = window_of(causal, left, right);
  Tensor result = at::zeros({query.size(0), query.size(1), value.size(-1)}, query.options());
  Tensor logarithms = at::zeros({query.size(1), query.size(0)}, query.options().dtype(at::kFloat)).fill_(-INFINITY);
  const Rows all_keys{key, block_table}, all_values{value, block_table};
  Masks first, masks;
  for_each_sequence(queries, keys, used, paged, [&](size_t i, int64_t row, int64_t rows, int64_t from, int64_t length) {
    if (rows == 0 || length == 0) return;
    const auto part = at::_scaled_dot_product_fused_attention_overrideable(
        by_head(query.narrow(0, row, rows)), by_head(all_keys.of(i, from, length)),
        by_head(all_values.of(i, from, length)), bias_of(query, rows, length, window), dropout, false, false, scale);
    result.narrow(0, row, rows).copy_(by_row(std::get<0>(part)));
    logarithms.narrow(1, row, rows).copy_(std::get<1>(part).squeeze(0));
    if (dropout > 0) masks.follow(std::get<6>(part), std::get<7>(part), query.size(1) * rows * length, first);
  });
  const Tensor state = dropout > 0 ? saved(first, query) : at::zeros({2}, query.options().dtype(at::kUInt64));
  const Tensor none = at::empty({0}, query.options());
  return {result, logarithms, state, at::empty({}, query.options().dtype(at::kUInt64)), none};
}

Tensor varlen_attention_into(Tensor &out, const Tensor &query, const Tensor &key, const Tensor &value,
                             const OptionalTensor &cum_seq_q, const OptionalTensor &cum_seq_k, c10::SymInt max_q,
                             c10::SymInt max_k, double dropout, bool causal, bool debug, std::optional<double> scale,
                             std::optional<c10::SymInt> left, std::optional<c10::SymInt> right,
                             const OptionalTensor &seqused_k, const OptionalTensor &alibi_slopes,
                             const OptionalTensor &block_table, std::optional<int64_t> splits) {
  const Forward all = varlen_attention(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout, causal, debug,
                                       scale, left, right, seqused_k, alibi_slopes, block_table, splits);
  out.copy_(std::get<0>(all));
  return std::get<1>(all);
}

std::tuple<Tensor, Tensor, Tensor> varlen_attention_backward(
    const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value, const Tensor &out,
    const Tensor &logsumexp, const Tensor &cum_seq_q, const Tensor &cum_seq_k, c10::SymInt, c10::SymInt, double dropout,
    bool causal, const Tensor &state, const Tensor &, std::optional<double> scale, std::optional<c10::SymInt> left,
    std::optional<c10::SymInt> right) {
  const Lengths queries = bounds_of("cum_seq_q", cum_seq_q, query.size(0));
  const Lengths keys = bounds_of("cum_seq_k", cum_seq_k, key.size(0));
  const Window window = window_of(causal, left, right);
  Tensor grads[] = {at::zeros(query.sizes(), query.options()), at::zeros(key.sizes(), key.options()),
                    at::zeros(value.sizes(), value.options())};
  const Lengths first = dropout > 0 ? read(state.view(at::kLong)) : Lengths{0, 0};
  TORCH_CHECK(first.size() == 2, "_flash_attention_backward: expected a rng_state of 2 numbers but got ", first.size());
  Masks masks{first[0], first[1]};
  for_each_sequence(queries, keys, {}, false, [&](size_t, int64_t row, int64_t rows, int64_t from, int64_t length) {
    if (rows == 0 || length == 0) return;
    const OptionalTensor bias = bias_of(query, rows, length, window);
    const auto part = at::_scaled_dot_product_fused_attention_overrideable_backward(
        by_head(grad.narrow(0, row, rows)), by_head(query.narrow(0, row, rows)), by_head(key.narrow(0, from, length)),
        by_head(value.narrow(0, from, length)), bias.value_or(Tensor()), {true, true, true, false},
        by_head(out.narrow(0, row, rows)), logsumexp.narrow(1, row, rows).unsqueeze(0), Tensor(), Tensor(), rows,
        length, dropout, false, at::scalar_tensor(masks.seed, at::kLong), at::scalar_tensor(masks.offset, at::kLong),
        scale);
    masks.advance(query.size(1) * rows * length);
    grads[0].narrow(0, row, rows).copy_(by_row(std::get<0>(part)));
    grads[1].narrow(0, from, length).copy_(by_row(std::get<1>(part)));
    grads[2].narrow(0, from, length).copy_(by_row(std::get<2>(part)));
  });
  return {grads[0], grads[1], grads[2]};
}

}  // namespace
}  // namespace torch_backend

#include "aten/attention/attention_varlen.inc"  // registrations: codegen/operators
