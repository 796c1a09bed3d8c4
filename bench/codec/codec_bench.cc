// Codec kernels against memcpy, on one core, with the data in L2.
//
//   codec_bench [--isa NAME] [--rounds N] [--values N] [--codec SPEC]... [--residual] [--check]
//               [--json FILE]
//   codec_bench --cores N [--json FILE] …
//
// Every round times memcpy and each kernel once, a few tens of microseconds each, so that whatever
// else the machine does hits all alike; what is printed is the median over the rounds of
// time(memcpy) / time(kernel), both for the same bytes of float32. --check fails below the floors
// of kernel_floors.h. Real (normal) data: zeros flatter a quantizer.
//
// --residual: what the kernels read of values, not of payloads, has a residual added to it.
//
// --cores runs each kernel on one core and on N at once, on data of their own, and prints how many
// times the throughput of one all have, as a multiple of what memcpy gains by the same.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/force_isa.h"
#include "core_scaling.h"
#include "kernel_floors.h"
#include "timed_kernels.h"

namespace tersum {
namespace {

struct Options {
  std::string isa;
  size_t rounds = 301;
  size_t values = 64 * 1024;
  size_t cores = 1;
  std::vector<std::string> codecs;
  bool check = false;
  bool has_residual = false;
  std::string json;
};

struct Row {
  std::string codec;
  std::string kernel;
  double ratio = 0;
  double memcpy_gb_s = 0;
  bool below_floor = false;
};

// Which physical pages an array gets decides how well it sits in L2, so the rounds are spread over
// several allocations.
constexpr size_t kLayouts = 7;

std::vector<Row> measure(const std::string& spec, const Options& options) {
  const Codec& codec = *find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value();
  const SystemClock clock;
  // About 30 us per sample: long against the clock, short against a time slice.
  const size_t repeats = std::max<size_t>(1, 400'000 / options.values);
  std::vector<std::string> names;
  std::vector<double> floors;
  std::vector<std::vector<double>> ratios;
  std::vector<double> memcpy_seconds;
  for (size_t layout = 0; layout < kLayouts; ++layout) {
    Arrays arrays(codec, options.values, options.has_residual);
    const std::vector<Kernel> kernels = kernels_of(codec, arrays, options.values);
    ratios.resize(kernels.size());
    for (size_t round = 0; round < std::max<size_t>(1, options.rounds / kLayouts); ++round) {
      const double base = seconds_of(clock, kernels[0].run, repeats);
      memcpy_seconds.push_back(base);
      for (size_t k = 1; k < kernels.size(); ++k) {
        ratios[k].push_back(base / seconds_of(clock, kernels[k].run, repeats));
      }
    }
    if (layout > 0) continue;
    for (const Kernel& kernel : kernels) {
      names.push_back(kernel.name);
      floors.push_back(options.isa.empty() ? kernel_floor(codec.spec(), kernel.name) : 0);
    }
  }
  std::vector<Row> rows;
  const double gb = 4e-9 * static_cast<double>(options.values);
  for (size_t k = 1; k < names.size(); ++k) {
    const double ratio = median(ratios[k]);
    rows.push_back({codec.spec().to_string(), names[k], ratio, gb / median(memcpy_seconds),
                    ratio < floors[k]});
  }
  return rows;
}

void print_rows(const std::vector<Row>& rows) {
  std::printf("%-10s memcpy %6.1f GB/s |", rows[0].codec.c_str(), rows[0].memcpy_gb_s);
  for (const Row& row : rows) {
    std::printf(" %s %.2fx%s", row.kernel.c_str(), row.ratio, row.below_floor ? " (LOW)" : "");
  }
  std::printf("\n");
}

void write_json(const std::string& path, const std::vector<Row>& rows) {
  std::ofstream file(path);
  file << "[";
  for (size_t i = 0; i < rows.size(); ++i) {
    file << (i == 0 ? "\n" : ",\n") << R"( {"isa": ")" << active_isa() << R"(", "codec": ")"
         << rows[i].codec << R"(", "kernel": ")" << rows[i].kernel << R"(", "ratio_to_memcpy": )"
         << rows[i].ratio << R"(, "memcpy_gb_s": )" << rows[i].memcpy_gb_s << "}";
  }
  file << "\n]\n";
}

struct ScalingRow {
  std::string codec;
  KernelScaling scaling;
  bool below_floor = false;
};

std::vector<ScalingRow> measure_cores(const Codec& codec, const Options& options) {
  std::vector<ScalingRow> rows;
  const std::string spec = codec.spec().to_string();
  for (const KernelScaling& scaling :
       measure_scaling(codec, options.values, options.cores, options.rounds)) {
    rows.push_back({spec, scaling, spec == "int8/128" && scaling.to_memcpy < kScalingFloor});
  }
  return rows;
}

void print_rows(const std::vector<ScalingRow>& rows) {
  std::printf("%-10s", rows[0].codec.c_str());
  for (const auto& [codec, scaling, below] : rows) {
    std::printf(" %s %.2f (%.2fx%s)", scaling.kernel.c_str(), scaling.times, scaling.to_memcpy,
                below ? ", LOW" : "");
  }
  std::printf("\n");
}

void write_json(const std::string& path, const std::vector<ScalingRow>& rows, size_t cores) {
  std::ofstream file(path);
  file << "[";
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [codec, scaling, below] = rows[i];
    file << (i == 0 ? "\n" : ",\n") << R"( {"isa": ")" << active_isa() << R"(", "codec": ")"
         << codec << R"(", "kernel": ")" << scaling.kernel << R"(", "cores": )" << cores
         << R"(, "times_one_core": )" << scaling.times << R"(, "scaling_to_memcpy": )"
         << scaling.to_memcpy << "}";
  }
  file << "\n]\n";
}

bool parse(int argc, char** argv, Options& options) {
  const auto number = [](const char* text, size_t& value) {
    return std::from_chars(text, text + std::strlen(text), value).ec == std::errc() && value > 0;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--check") {
      options.check = true;
      continue;
    }
    if (flag == "--residual") {
      options.has_residual = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* const value = argv[++i];
    if (flag == "--isa") {
      options.isa = value;
    } else if (flag == "--codec") {
      options.codecs.emplace_back(value);
    } else if (flag == "--json") {
      options.json = value;
    } else if (flag == "--rounds") {
      if (!number(value, options.rounds)) return false;
    } else if (flag == "--values") {
      if (!number(value, options.values)) return false;
    } else if (flag == "--cores") {
      if (!number(value, options.cores)) return false;
    } else {
      return false;
    }
  }
  // A residual is that of one core.
  return options.cores == 1 || !options.has_residual;
}

int run(const Options& options) {
  if (const Status status = force_isa(options.isa); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return 2;
  }
  std::vector<std::string> codecs = options.codecs;
  if (codecs.empty()) {
    codecs = {"exact", "bf16", "int8/32", "int8/128", "int8/256", "int4/32", "int4/128"};
  }
  if (options.codecs.empty() && options.check) {
    // Of each kind that has a floor.
    codecs.insert(codecs.end(), {"int6/128", "nf4/64", "mxfp8:e4m3", "mxfp8:e5m2"});
    for (const char* base : {"int8/128", "int6/128", "int4/128", "nf4/64", "mxfp8:e4m3"}) {
      codecs.push_back(std::string(base) + "+hadamard");
      codecs.push_back(std::string(base) + "+flatten");
    }
    // Their encoders are the slowest that have one.
    codecs.insert(codecs.end(), {"int4/32+hadamard+sr", "nvfp4+hadamard", "mxfp6:e2m3+hadamard",
                                 "five/32+hadamard"});
  }
  std::printf("%zu float32 values, %s, median of %zu rounds; higher is faster\n", options.values,
              std::string(active_isa()).c_str(), options.rounds);
  std::vector<Row> all;
  std::vector<ScalingRow> all_cores;
  bool low = false;
  for (const std::string& spec : codecs) {
    if (const auto found = find_codec(spec, DataType::kFloat32, ReduceOp::kSum); !found.ok()) {
      std::fprintf(stderr, "%s\n", found.status().to_string().c_str());
      return 2;
    }
    if (options.cores > 1) {
      const auto rows =
          measure_cores(*find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value(), options);
      print_rows(rows);
      for (const ScalingRow& row : rows) low = low || row.below_floor;
      all_cores.insert(all_cores.end(), rows.begin(), rows.end());
      continue;
    }
    const std::vector<Row> rows = measure(spec, options);
    print_rows(rows);
    for (const Row& row : rows) low = low || row.below_floor;
    all.insert(all.end(), rows.begin(), rows.end());
  }
  if (!options.json.empty() && options.cores > 1) {
    write_json(options.json, all_cores, options.cores);
  } else if (!options.json.empty()) {
    write_json(options.json, all);
  }
  return options.check && low ? 1 : 0;
}

}  // namespace
}  // namespace tersum

int main(int argc, char** argv) {
  tersum::Options options;
  if (!tersum::parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: codec_bench [--isa NAME] [--rounds N] [--values N] [--cores N] "
                 "[--codec SPEC]... [--residual] [--check] [--json FILE]\n");
    return 2;
  }
  return tersum::run(options);
}
