// Runs operators on the emulated CUDA device, their host side included, and says what each call cost there.
// benchmarks/emulated.py writes the calls and reads the answers.
//
//   count_launches [results] < calls
//
// A call is a line 'call <operator> <number of arguments>', then for each argument a line: 'none', 'int 5'
// (true and false are 1 and 0), 'string sum', 'dtype float32', 'tensor float32 2 7680 128' (dtype, number of
// dimensions, sizes) with the values as raw bytes behind it, or 'list 3' with so many tensors behind it. The
// answer is one line of JSON. `results`, if given, gets the raw bytes of what the call returned, or of the
// first argument where the operator writes to that.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "emulation/counts.h"
#include "standin/tensor.h"

namespace {

using torch::stable::Argument;
using torch::stable::ScalarType;
using torch::stable::Tensor;

// As torch's allocator counts: what is held, and the most that was held at a time.
int64_t held = 0, most_held = 0;

const std::map<std::string, ScalarType> kTypes{
    {"bool", ScalarType::Bool},     {"uint8", ScalarType::Byte},    {"int32", ScalarType::Int},
    {"int64", ScalarType::Long},    {"float16", ScalarType::Half},  {"bfloat16", ScalarType::BFloat16},
    {"float32", ScalarType::Float}, {"float64", ScalarType::Double}};

std::string next_line() {
  std::string line;
  if (!std::getline(std::cin, line)) throw std::runtime_error("the calls end in the middle of one");
  return line;
}

Argument next_argument() {
  const std::string line = next_line(), kind = line.substr(0, line.find(' '));
  const std::string rest = line.substr(std::min(line.size(), kind.size() + 1));
  if (kind == "none") return torch::stable::None();
  if (kind == "int") return int64_t(std::stoll(rest));
  if (kind == "float") return std::stod(rest);
  if (kind == "string") return rest;
  if (kind == "dtype") return kTypes.at(rest);
  if (kind == "list") {
    std::vector<Tensor> tensors;
    for (int64_t left = std::stoll(rest); left > 0; --left)
      tensors.push_back(std::get<Tensor>(next_argument()));
    return tensors;
  }
  if (kind != "tensor") throw std::runtime_error("no such kind of argument: " + line);
  std::istringstream words(rest);
  std::string type;
  size_t dimensions = 0;
  words >> type >> dimensions;
  std::vector<int64_t> sizes(dimensions);
  for (int64_t& size : sizes) words >> size;
  if (!words || !kTypes.count(type)) throw std::runtime_error("no such tensor: " + line);
  const Tensor tensor(sizes, kTypes.at(type), true);
  std::cin.read(static_cast<char*>(tensor.mutable_data_ptr()), tensor.numel() * tensor.element_size());
  return tensor;
}

void print(const emulation::KernelCounts& counts) {
  std::printf("\"launches\": %ld, \"bytes_read\": %ld, \"bytes_written\": %ld, ", counts.launches,
              counts.bytes_read, counts.bytes_written);
  std::printf("\"sectors_read\": %ld, \"sectors_written\": %ld, ", counts.sectors_read,
              counts.sectors_written);
  std::printf("\"distinct_read\": %ld, \"distinct_written\": %ld, ", counts.distinct_read,
              counts.distinct_written);
  std::printf("\"longest_chain\": %ld, \"longest_loop\": %ld", counts.longest_chain, counts.longest_loop);
}

void print(const std::string& name, const emulation::Counts& counts, const std::vector<Tensor>& results) {
  std::printf("{\"operator\": \"%s\", \"waits\": %ld, \"memory\": %ld, ", name.c_str(), counts.waits,
              most_held);
  print(counts.total());
  std::printf(", \"results\": [");
  for (size_t r = 0; r < results.size(); ++r) {
    std::printf("%s[", r ? ", " : "");
    for (int64_t d = 0; d < results[r].dim(); ++d) std::printf("%s%ld", d ? ", " : "", results[r].size(d));
    std::printf("]");
  }
  std::printf("], \"kernels\": [");
  for (size_t k = 0; k < counts.kernels.size(); ++k) {
    std::printf("%s{\"name\": \"%s\", ", k ? ", " : "", counts.kernels[k].first.c_str());
    print(counts.kernels[k].second);
    std::printf("}");
  }
  std::printf("]}\n");
  std::fflush(stdout);
}

void run_call(const std::string& name, size_t count, std::ofstream& out) {
  std::vector<Argument> arguments;
  for (size_t i = 0; i < count; ++i) arguments.push_back(next_argument());
  const auto found = torch::stable::operators.find("CUDA " + name);
  if (found == torch::stable::operators.end()) throw std::runtime_error("no such operator: " + name);
  held = most_held = 0;
  emulation::clear();
  emulation::Counts counts;
  std::vector<Tensor> results;
  {
    const emulation::Counting counting(counts);
    results = found->second(arguments);
  }
  for (const std::string& text : emulation::record.assertions) throw std::runtime_error(text);
  if (name.ends_with("_")) results.push_back(std::get<Tensor>(arguments.at(0)));
  print(name, counts, results);
  for (const Tensor& result : results) {
    out.write(result.const_data_ptr<char>(), result.numel() * result.element_size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  emulation::DeviceMemory memory;
  torch::stable::allocate = [&](size_t bytes) {
    const int64_t taken = emulation::DeviceMemory::taken(int64_t(bytes));
    held += taken;
    most_held = std::max(most_held, held);
    return torch::stable::Memory(memory.allocate(int64_t(bytes)), [=](void*) { held -= taken; });
  };
  torch::stable::on_device = [](int64_t read, int64_t written, const std::function<void()>& work) {
    const emulation::OnDevice here;
    work();
    if (emulation::observer) emulation::observer->launched("copy", 1, read, written);
  };
  std::ofstream out;
  if (argc > 1) out.open(argv[1], std::ios::binary);
  emulation::settings.most_steps = INT64_MAX;
  std::string line, name;
  try {
    while (std::getline(std::cin, line)) {
      size_t count = 0;
      std::istringstream words(line);
      words >> line >> name >> count;
      if (!words || line != "call") throw std::runtime_error("expected a call, got: " + line);
      run_call(name, count, out);
      memory.clear();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
}
