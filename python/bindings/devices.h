// The memory of devices: blocks that outlive their tree, and arrays that come and go by DLPack.
#ifndef SUMTREE_BINDINGS_DEVICES_H
#define SUMTREE_BINDINGS_DEVICES_H

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "threads.h"

namespace bindings {

namespace nb = nanobind;

constexpr int DLPACK_CPU = 1;
constexpr int DLPACK_CUDA = 2;
constexpr int DLPACK_CUDA_MANAGED = 13;

// The legacy default stream of CUDA has two names.
inline bool is_default_stream(const void *stream) { return reinterpret_cast<uintptr_t>(stream) <= 1; }

// Without strides, an array is contiguous.
inline bool is_contiguous(const nb::dlpack::dltensor &tensor) {
    int64_t expected = 1;
    bool is_packed = true;
    for (int32_t axis = tensor.ndim; axis-- > 0;) {
        if (tensor.shape[axis] == 0) return true;
        is_packed =
            is_packed && (tensor.strides == nullptr || tensor.shape[axis] == 1 || tensor.strides[axis] == expected);
        expected *= tensor.shape[axis];
    }
    return is_packed;
}

// Blocks of one device's memory, of 2^k bytes each, kept for the next call: a device takes longer to give one than the
// tree to fill it. A pool lives as long as the process.
class Pool {
  public:
    Pool(const Backend &backend, int32_t device) : backend_(backend), device_(device) {}

    static int order_of(uint64_t bytes) {
        int order = LEAST;
        while ((uint64_t(1) << order) < bytes) ++order;
        return order;
    }

    void *take(int order) {
        backend_.enter();
        void *block = pop(order);
        if (block != nullptr && !is_untidy()) return block;
        const auto status = without_the_gil([&] {
            tidy();
            return block != nullptr ? SUMTREE_OK : allocate(order, &block);
        });
        backend_.check(status);
        return block;
    }

    // Nothing of the device is called here: whoever frees an array may be a callback of its driver. What somebody else's
    // stream may still use is not handed out again, but freed by the next call that may wait for the device.
    void give_back(void *block, int order, bool in_foreign_use) noexcept {
        if (!backend_.usable()) return;
        const std::lock_guard<std::mutex> lock(mutex_);
        auto &list = in_foreign_use ? foreign_ : kept_.at(order);
        list.push_back(block);
        bytes_ += in_foreign_use ? 0 : uint64_t(1) << order;
    }

    // Gives everything back to the device. Without the GIL.
    void release_all() {
        std::vector<void *> blocks = all_foreign();
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            for (auto &list : kept_) move_to(blocks, list);
            bytes_ = 0;
        }
        release(blocks);
    }

  private:
    static constexpr int LEAST = 9; // 512 bytes: what drivers align to, and more
    static constexpr uint64_t MOST_BYTES = uint64_t(256) << 20;

    static void move_to(std::vector<void *> &all, std::vector<void *> &list) {
        all.insert(all.end(), list.begin(), list.end());
        list.clear();
    }

    void *pop(int order) {
        const std::lock_guard<std::mutex> lock(mutex_);
        auto &list = kept_.at(order);
        if (list.empty()) return nullptr;
        void *block = list.back();
        list.pop_back();
        bytes_ -= uint64_t(1) << order;
        return block;
    }

    bool is_untidy() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return !foreign_.empty() || bytes_ > MOST_BYTES;
    }

    void tidy() {
        if (bytes_kept() > MOST_BYTES) release_all();
        release(all_foreign());
    }

    sumtree_status allocate(int order, void **block) {
        const auto bytes = uint64_t(1) << order;
        const auto status = backend_.device_allocate(device_, bytes, block);
        if (status != SUMTREE_MEMORY) return status;
        release_all();
        return backend_.device_allocate(device_, bytes, block);
    }

    uint64_t bytes_kept() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return bytes_;
    }

    std::vector<void *> all_foreign() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return std::exchange(foreign_, {});
    }

    void release(const std::vector<void *> &blocks) {
        for (void *block : blocks) backend_.device_release(device_, block);
    }

    const Backend &backend_;
    int32_t device_;
    std::mutex mutex_;
    std::array<std::vector<void *>, 64> kept_;
    std::vector<void *> foreign_;
    uint64_t bytes_ = 0; // in kept_
};

// With the GIL.
inline Pool &pool_of(const Backend &backend, int32_t device) {
    static std::map<std::pair<const Backend *, int32_t>, std::unique_ptr<Pool>> pools;
    auto &pool = pools[{&backend, device}];
    if (!pool) pool = std::make_unique<Pool>(backend, device);
    return *pool;
}

class Block {
  public:
    Block(Pool &pool, uint64_t bytes) : pool_(pool), order_(Pool::order_of(bytes)), data_(pool.take(order_)) {}
    ~Block() { pool_.give_back(data_, order_, in_foreign_use_); }
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;

    void *data() const { return data_; }
    void note_foreign_use() { in_foreign_use_ = true; }

  private:
    Pool &pool_;
    int order_;
    void *data_;
    std::atomic<bool> in_foreign_use_ = false;
};

// A result in the memory of a device, on its way to the caller's library.
class DeviceArray {
  public:
    DeviceArray(const Backend &backend, int32_t device, std::vector<size_t> shape, bool holds_indices)
        : on_host_(backend.device_is_host), device_(device), shape_(std::move(shape)), holds_indices_(holds_indices),
          block_(std::make_shared<Block>(pool_of(backend, device), bytes_of(shape_))) {}

    void *data() const { return block_->data(); }
    const std::shared_ptr<Block> &block() const { return block_; }
    nb::dlpack::dtype dlpack_dtype() const { return holds_indices_ ? nb::dtype<int64_t>() : nb::dtype<double>(); }
    const std::vector<size_t> &shape() const { return shape_; }
    const char *dtype() const { return holds_indices_ ? "int64" : "float64"; }
    std::pair<int, int> dlpack_device() const { return {on_host_ ? DLPACK_CPU : DLPACK_CUDA, device_}; }

    size_t size() const {
        size_t size = 1;
        for (const size_t axis : shape_) size *= axis;
        return size;
    }

    // Whatever stream is given, the elements are there: results are complete when a call returns. But what runs on
    // another stream than the default one may still read them after the last reference is gone.
    nb::object dlpack(const nb::kwargs &wishes) const {
        const nb::object stream = wishes.contains("stream") ? nb::object(wishes["stream"]) : nb::none();
        if (!stream.is_none() && !is_default(stream)) block_->note_foreign_use();
        nb::capsule owner(new std::shared_ptr<Block>(block_),
                          [](void *held) noexcept { delete static_cast<std::shared_ptr<Block> *>(held); });
        const auto [device_type, device] = dlpack_device();
        const nb::ndarray<nb::array_api> exported(data(), shape_.size(), shape_.data(), owner, nullptr, dlpack_dtype(),
                                                  device_type, device);
        return nb::cast(exported, nb::rv_policy::reference).attr("__dlpack__")(**wishes);
    }

    nb::dict cuda_array_interface() const {
        if (on_host_) throw nb::attribute_error("__cuda_array_interface__");
        block_->note_foreign_use();
        nb::dict described;
        described["shape"] = nb::tuple(nb::cast(shape_));
        described["typestr"] = holds_indices_ ? "<i8" : "<f8";
        described["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(data()), false);
        described["strides"] = nb::none();
        described["version"] = 3;
        return described;
    }

  private:
    static uint64_t bytes_of(const std::vector<size_t> &shape) {
        constexpr size_t MOST = size_t(1) << 50;
        size_t size = 1;
        for (const size_t axis : shape) {
            if (axis > MOST || size * axis > MOST) throw Failure{"MEMORY", "no device holds so large an array", -1};
            size *= axis;
        }
        return size * sizeof(double);
    }

    static bool is_default(nb::handle stream) {
        return PyLong_Check(stream.ptr()) && (nb::cast<int64_t>(stream) == 0 || nb::cast<int64_t>(stream) == 1);
    }

    bool on_host_;
    int32_t device_;
    std::vector<size_t> shape_;
    bool holds_indices_;
    std::shared_ptr<Block> block_;
};

// An array of the caller's, from the capsule that its __dlpack__ gave; kept alive as long as this is.
class DeviceView {
  public:
    explicit DeviceView(nb::capsule capsule) {
        is_writable_ = nb::try_cast(capsule, writable_);
        if (!is_writable_) read_only_ = nb::cast<nb::ndarray<nb::ro>>(capsule);
    }

    void *data() const { return is_writable_ ? writable_.data() : const_cast<void *>(read_only_.data()); }
    bool is_writable() const { return is_writable_; }

    std::vector<size_t> shape() const {
        std::vector<size_t> shape(axes());
        for (size_t axis = 0; axis < shape.size(); ++axis) shape[axis] = static_cast<size_t>(length(axis));
        return shape;
    }

    // The name that NumPy has for it, or one in its manner.
    std::string dtype() const {
        const auto dtype = is_writable_ ? writable_.dtype() : read_only_.dtype();
        static constexpr std::array<const char *, 7> NAMES = {"int",    "uint",    "float", "handle",
                                                              "bfloat", "complex", "bool"};
        if (dtype.lanes != 1 || dtype.code >= NAMES.size()) return "unknown";
        return std::string(NAMES[dtype.code]) + (dtype.code == NAMES.size() - 1 ? "" : std::to_string(dtype.bits));
    }

    bool is_contiguous() const {
        if (size() == 0) return true;
        int64_t expected = 1;
        for (size_t axis = axes(); axis-- > 0;) {
            if (length(axis) != 1 && stride(axis) != expected) return false;
            expected *= length(axis);
        }
        return true;
    }

    int64_t size() const {
        int64_t size = 1;
        for (size_t axis = 0; axis < axes(); ++axis) size *= length(axis);
        return size;
    }
    size_t axes() const { return is_writable_ ? writable_.ndim() : read_only_.ndim(); }

  private:
    int64_t length(size_t axis) const {
        return static_cast<int64_t>(is_writable_ ? writable_.shape(axis) : read_only_.shape(axis));
    }
    int64_t stride(size_t axis) const { return is_writable_ ? writable_.stride(axis) : read_only_.stride(axis); }

    nb::ndarray<> writable_;
    nb::ndarray<nb::ro> read_only_;
    bool is_writable_ = false;
};

// The elements of an array in the memory of a device; borrowed.
struct Span {
    explicit Span(const DeviceView &view) : data(view.data()), size(view.size()), axes(view.axes()) {}
    explicit Span(const DeviceArray &array)
        : data(array.data()), size(static_cast<int64_t>(array.size())), axes(array.shape().size()) {}
    explicit Span(const nb::dlpack::dltensor &tensor)
        : data(tensor.data), size(1), axes(static_cast<size_t>(tensor.ndim)) {
        for (int32_t axis = 0; axis < tensor.ndim; ++axis) size *= tensor.shape[axis];
    }
    template <typename Element> Element *as() const { return static_cast<Element *>(data); }

    void *data;
    int64_t size;
    size_t axes;
};

// Of spans of one size.
inline bool overlap(const Span &first, const Span &second) {
    const auto one = reinterpret_cast<uintptr_t>(first.data), other = reinterpret_cast<uintptr_t>(second.data);
    return (one < other ? other - one : one - other) < static_cast<size_t>(first.size) * sizeof(int64_t);
}

inline Span span_of(nb::handle array) {
    if (nb::isinstance<DeviceView>(array)) return Span(nb::cast<const DeviceView &>(array));
    return Span(nb::cast<const DeviceArray &>(array));
}

} // namespace bindings

#endif
