// meta_cache.cpp: see meta_cache.h.
#include "aten/prepare/meta_cache.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "aten/prepare/tensor.h"

namespace torch_backend {

namespace {

constexpr size_t kMostWords = 1 << 20;  // of all keys
constexpr c10::DispatchKeySet kAnyLazyBits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
constexpr size_t kWordsOfShapes = 32;  // estimate of the memory that a key's shapes use

// The type of an argument, before its value: keys of different arguments are never equal.
enum Tag : uint64_t {
  kNone,
  kTensor,
  kNumber,
  kInt,
  kBool,
  kDouble,
  kComplex,
  kDtype,
  kText,
  kTensors,
  kInts,
  kDoubles,
  kResult
};

struct Hash {
  size_t operator()(const MetaKey &key) const { return key.hash(); }
};

struct Cache {
  std::mutex lock;
  std::unordered_map<MetaKey, std::shared_ptr<const ResultShapes>, Hash> shapes;
  size_t words = 0;
};

// Never destroyed: threads may still call operators when the process ends.
Cache &cache() {
  static auto *const cache = new Cache;
  return *cache;
}

}  // namespace

MetaKey::MetaKey(const AtenOp &functional) {
  words_.push_back(reinterpret_cast<uintptr_t>(&functional));
  add(c10::get_default_dtype_as_scalartype());
}

MetaKey::MetaKey(uint32_t op) { words_.push_back(op); }  // smaller than an address

void MetaKey::add_result(const at::Tensor &result) {
  add_head(kResult);
  add(result);
}

void MetaKey::add_none() { add_head(kNone); }

void MetaKey::add_bytes(const void *bytes, size_t size) {
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char *>(bytes) + at, std::min(size - at, sizeof word));
    words_.push_back(word);
  }
}

// Adds the value of a number in host memory: a meta function may read it.
void MetaKey::add_number(const at::Tensor &tensor) {
  const auto is_wrapped = static_cast<uint64_t>(tensor.unsafeGetTensorImpl()->is_wrapped_number());
  add_head(kNumber, static_cast<uint64_t>(tensor.scalar_type()) | is_wrapped << 8);
  add_bytes(tensor.const_data_ptr(), tensor.itemsize());
}

void MetaKey::add(const at::Tensor &tensor) {
  if (!tensor.defined()) return add_none();
  const c10::TensorImpl *const impl = tensor.unsafeGetTensorImpl();
  const bool is_plain = (impl->key_set() & kAnyLazyBits).empty() && tensor.layout() == c10::kStrided &&
                        !impl->has_symbolic_sizes_strides();
  const bool is_ours = impl->device_type() == kDevice;
  if (!is_plain || (!is_ours && !(tensor.is_cpu() && tensor.dim() == 0))) {
    is_complete_ = false;
    return;
  }
  if (!is_ours) return add_number(tensor);
  const c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
  add_head(kTensor, static_cast<uint64_t>(tensor.scalar_type()) | sizes.size() << 8);
  words_.append(sizes.begin(), sizes.end());
  words_.append(strides.begin(), strides.end());
  addresses_ |= reinterpret_cast<uintptr_t>(describe(tensor).data);
}

void MetaKey::add(const at::ITensorListRef &list) {
  add_head(kTensors, list.size());
  for (const at::Tensor &tensor : list) add(tensor);
}

void MetaKey::add(const c10::List<std::optional<at::Tensor>> &list) {
  add_head(kTensors, list.size());
  for (const std::optional<at::Tensor> tensor : list) add(tensor);
}

void MetaKey::add(const c10::Scalar &number) {
  // isUnsigned() is true for every integer that is not negative, so the type is compared.
  is_complete_ = is_complete_ && !number.isSymbolic() && number.type() != c10::ScalarType::UInt64;
  if (!is_complete_) return;
  if (number.isBoolean()) return add(number.toBool());
  if (number.isFloatingPoint()) return add(number.toDouble());
  if (!number.isComplex()) return add(number.toLong());
  const c10::complex<double> parts = number.toComplexDouble();
  add_head(kComplex);
  add_bytes(&parts, sizeof parts);
}

void MetaKey::add(double number) {
  add_head(kDouble);
  add_bytes(&number, sizeof number);
}

void MetaKey::add(int64_t number) {
  add_head(kInt);
  words_.push_back(static_cast<uint64_t>(number));
}

void MetaKey::add(bool flag) { add_head(kBool, static_cast<uint64_t>(flag)); }
void MetaKey::add(c10::ScalarType dtype) { add_head(kDtype, static_cast<uint64_t>(dtype)); }

void MetaKey::add(c10::IntArrayRef list) {
  add_head(kInts, list.size());
  words_.append(list.begin(), list.end());
}

void MetaKey::add(c10::ArrayRef<double> list) {
  add_head(kDoubles, list.size());
  add_bytes(list.data(), list.size() * sizeof(double));
}

void MetaKey::add(std::string_view text) {
  add_head(kText, text.size());
  add_bytes(text.data(), text.size());
}

size_t MetaKey::hash() const {
  constexpr uint64_t kFirst = UINT64_C(0x9E3779B97F4A7C15), kSecond = UINT64_C(0xE7037ED1A0B428DB);
  const auto mix = [](uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t hash = words_.size();
  size_t at = 0;
  for (; at + 1 < words_.size(); at += 2) hash = mix(words_[at] ^ hash ^ kFirst, words_[at + 1] ^ kSecond);
  return at < words_.size() ? mix(words_[at] ^ hash ^ kFirst, kSecond) : hash;
}

namespace {

// The latest keys of one thread, which it finds without a lock.
class LatestKeys {
 public:
  struct Entry {
    std::optional<MetaKey> key;
    std::shared_ptr<const ResultShapes> shapes;
  };

  // Returns the place of a key; NULL for long keys, which would use much memory in each thread.
  Entry *place(const MetaKey &key) {
    if (key.words() > kLongest) return nullptr;
    if (C10_UNLIKELY(!entries_)) entries_ = std::make_unique<Entries>();
    return &(*entries_)[key.hash() % kEntries];
  }

 private:
  static constexpr size_t kEntries = 256, kLongest = 64;
  using Entries = std::array<Entry, kEntries>;
  std::unique_ptr<Entries> entries_;
};

thread_local LatestKeys latest_keys;

void keep(LatestKeys::Entry *place, const MetaKey &key, const std::shared_ptr<const ResultShapes> &shapes) {
  if (!place) return;
  place->key = key;
  place->shapes = shapes;
}

}  // namespace

std::shared_ptr<const ResultShapes> remembered_shapes(const MetaKey &key) {
  LatestKeys::Entry *const place = latest_keys.place(key);
  if (C10_LIKELY(place && place->key && *place->key == key)) return place->shapes;
  std::shared_ptr<const ResultShapes> shapes;
  {
    const std::lock_guard<std::mutex> guard(cache().lock);
    const auto found = cache().shapes.find(key);
    if (found == cache().shapes.end()) return nullptr;
    shapes = found->second;
  }
  keep(place, key, shapes);
  return shapes;
}

void remember_shapes(MetaKey key, std::shared_ptr<const ResultShapes> shapes) {
  decltype(Cache::shapes) forgotten;  // destroyed without the lock
  keep(latest_keys.place(key), key, shapes);
  const std::lock_guard<std::mutex> guard(cache().lock);
  if (cache().words > kMostWords) {
    cache().shapes.swap(forgotten);
    cache().words = 0;
  }
  cache().words += key.words() + kWordsOfShapes;
  cache().shapes.insert_or_assign(std::move(key), std::move(shapes));
}

}  // namespace torch_backend
