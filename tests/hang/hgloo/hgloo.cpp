// A backend that passes every call on to gloo and reports when operations end, as nccl2 does, so that PyTorch's
// FlightRecorderHook records jobs that run on a CPU. If it batches, its transfers in batches look as those of
// nccl2: each one is reported as ended when it is issued.
#include <torch/extension.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <list>
#include <map>
#include <mutex>
#include <thread>

namespace {

using namespace c10d;
using Handle = c10::intrusive_ptr<Work>;
using Tensors = std::vector<at::Tensor>;

struct Several : public Work { // ends when all of its parts have
  std::vector<Handle> parts;
  bool isCompleted() override {
    for (auto& part : parts) if (!part->isCompleted()) return false;
    return true;
  }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds timeout) override {
    for (auto& part : parts) part->wait(timeout);
    return true;
  }
};

struct Reporting : public Backend {
  c10::intrusive_ptr<Backend> gloo;
  const bool batches;
  c10::intrusive_ptr<Several> batch;
  std::mutex mutex;
  std::list<Handle> open;
  std::map<int64_t, CompletionHook> hooks;

  Reporting(c10::intrusive_ptr<Backend> gloo, bool batches) : Backend(gloo->getRank(), gloo->getSize()), gloo(gloo), batches(batches) {
    std::thread([this] { for (;; std::this_thread::sleep_for(std::chrono::milliseconds(2))) report(); }).detach();
  }
  const std::string getBackendName() const override { return batches ? "nccl2" : "hgloo"; }
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(int64_t id, CompletionHook hook) override { std::lock_guard<std::mutex> lock(mutex); hooks[id] = hook; }
  void unregisterCompletionHook(int64_t id) override { std::lock_guard<std::mutex> lock(mutex); hooks.erase(id); }
  bool supportsCoalescing() const override { return batches; }
  void startCoalescing() override { batch = c10::make_intrusive<Several>(); }
  Handle endCoalescing() override { return std::move(batch); }

  void report() {
    std::vector<Handle> ended;
    std::map<int64_t, CompletionHook> told;
    {
      std::lock_guard<std::mutex> lock(mutex);
      told = hooks;
      for (auto it = open.begin(); it != open.end();)
        if ((*it)->isCompleted()) ended.push_back(*it), it = open.erase(it); else ++it;
    }
    for (auto& work : ended) if (!work->exception()) for (auto& hook : told) {
      CompletionHookArgs args;
      args.completionKey = work->getCompletionKey();
      hook.second(args);
    }
  }
  Handle track(Handle work) { std::lock_guard<std::mutex> lock(mutex); open.push_back(work); return work; }
  Handle transfer(Handle work) {
    if (!batch) return track(work);
    batch->parts.push_back(work);
    return c10::make_intrusive<Several>();
  }
  Handle send(Tensors& t, int to, int tag) override { return transfer(gloo->send(t, to, tag)); }
  Handle recv(Tensors& t, int from, int tag) override { return transfer(gloo->recv(t, from, tag)); }
  Handle recvAnysource(Tensors& t, int tag) override { return transfer(gloo->recvAnysource(t, tag)); }
  Handle allreduce(Tensors& t, const AllreduceOptions& o) override { return track(gloo->allreduce(t, o)); }
  Handle broadcast(Tensors& t, const BroadcastOptions& o) override { return track(gloo->broadcast(t, o)); }
  Handle barrier(const BarrierOptions& o) override { return track(gloo->barrier(o)); }
  Handle allgather(std::vector<Tensors>& a, Tensors& b, const AllgatherOptions& o) override { return track(gloo->allgather(a, b, o)); }
  Handle reduce(Tensors& t, const ReduceOptions& o) override { return track(gloo->reduce(t, o)); }
  Handle gather(std::vector<Tensors>& a, Tensors& b, const GatherOptions& o) override { return track(gloo->gather(a, b, o)); }
};

c10::intrusive_ptr<Backend> create(c10::intrusive_ptr<Backend> gloo, bool batches) { return c10::make_intrusive<Reporting>(gloo, batches); }

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("create", &create, py::call_guard<py::gil_scoped_release>()); }
