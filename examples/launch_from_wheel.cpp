// Sums an array with the kernels of the wheel lowlevel-reduce-kernels, by the driver API alone: no Python, no compiler.
//
// It reads the manifest of this GPU's architecture, unpacks one cubin, checks its SHA-256, and launches it by the grid rule
// and the argument layout that stand there. docs/embedding.md says what the fields mean. The elements are small integers, whose sum is exact
// in float64, so that the result can be compared with one computed here.
//
//     g++ -std=c++17 -O2 -I CUDA/include -I JSON/include launch_from_wheel.cpp -o launch_from_wheel -llzma -lcrypto -ldl
//     ./launch_from_wheel SITE_PACKAGES/lowlevel_reduce_kernels 1000000
//
// With --list in place of a number it needs no GPU: it unpacks every kernel of the manifests, and checks all digests.
#include <cuda.h>
#include <dlfcn.h>
#include <lzma.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

using Json = nlohmann::json;
using Bytes = std::vector<uint8_t>;

[[noreturn]] static void fail(const std::string& what) { throw std::runtime_error(what); }

// -- the wheel --------------------------------------------------------------------------------------------------------------

struct Wheel {
    Json manifest;
    std::ifstream pack;
    std::map<size_t, Bytes> unpacked;

    Wheel(const std::filesystem::path& directory, const std::string& architecture)
    {
        const auto path = directory / (architecture + ".json");
        std::ifstream file(path);
        if (!file) fail("the wheel has no kernels for " + architecture + ": there is no " + path.string());
        manifest = Json::parse(file);
        if (manifest.at("format") != 1) fail("a manifest of another format");
        pack.open(directory / manifest.at("pack").get<std::string>(), std::ios::binary);
        if (!pack) fail("the pack is missing");
    }

    // A block is an xz stream with several kernels in it.
    const Bytes& block(size_t number)
    {
        auto& data = unpacked[number];
        if (!data.empty()) return data;
        const Json& place = manifest.at("blocks").at(number);
        Bytes packed(place.at("size").get<size_t>());
        pack.seekg(place.at("offset").get<std::streamoff>());
        if (!pack.read(reinterpret_cast<char*>(packed.data()), std::streamsize(packed.size()))) fail("the pack is truncated");
        data.resize(place.at("unpacked").get<size_t>());
        uint64_t memory = UINT64_MAX;
        size_t in = 0, out = 0;
        const auto code = lzma_stream_buffer_decode(
            &memory, 0, nullptr, packed.data(), &in, packed.size(), data.data(), &out, data.size());
        if (code != LZMA_OK || out != data.size()) fail("a block cannot be unpacked");
        return data;
    }

    Bytes cubin(const Json& kernel)
    {
        const Bytes& data = block(kernel.at("block").get<size_t>());
        const size_t offset = kernel.at("offset").get<size_t>(), size = kernel.at("size").get<size_t>();
        if (offset > data.size() || size > data.size() - offset) fail("a kernel lies outside its block");
        Bytes code(data.begin() + std::ptrdiff_t(offset), data.begin() + std::ptrdiff_t(offset + size));
        uint8_t digest[SHA256_DIGEST_LENGTH];
        char text[2 * SHA256_DIGEST_LENGTH + 1] = "";
        SHA256(code.data(), code.size(), digest);
        for (int i = 0; i < SHA256_DIGEST_LENGTH; ++i) std::snprintf(text + 2 * i, 3, "%02x", digest[i]);
        if (kernel.at("sha256") != text) fail(kernel.at("entry").get<std::string>() + " does not match its digest");
        return code;
    }

    // The kernel that reduces a whole array of so many leaves. Of those that do, the one for the smallest arrays; the address
    // of an array from cuMemAlloc is a multiple of 256.
    const Json& whole(const std::string& operation, const std::string& element, uint64_t elements) const
    {
        for (const std::string rule : {"one_block", "one_cluster", "tiles"}) {
            for (const Json& kernel : manifest.at("kernels")) {
                const Json& grid = kernel.at("grid");
                if (kernel.at("operator") != operation || kernel.at("element") != element || kernel.at("alignment") != 16) continue;
                if (grid.is_null() || grid.at("rule") != rule) continue;
                const uint64_t leaf = kernel.at("leaf_elements").get<uint64_t>();
                if (!grid.contains("most_leaves") || (elements + leaf - 1) / leaf <= grid.at("most_leaves").get<uint64_t>())
                    return kernel;
            }
        }
        fail("the wheel has no " + operation + " of " + element);
    }
};

// -- the grid and the argument, by the manifest -----------------------------------------------------------------------------

struct Grid {
    uint32_t blocks, cluster, threads;
    uint64_t count, workspace_bytes;
};

static uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

static Grid grid_of(const Json& manifest, const Json& kernel, uint64_t elements)
{
    const Json &rule = kernel.at("grid"), &space = manifest.at("workspace");
    const uint64_t leaves = std::max<uint64_t>(1, ceil_div(elements, kernel.at("leaf_elements").get<uint64_t>()));
    const uint64_t slots = ceil_div(leaves, space.at("leaves_per_slot").get<uint64_t>());
    Grid grid{};
    grid.threads = rule.at("threads").get<uint32_t>();
    grid.workspace_bytes = space.at("header_bytes").get<uint64_t>() + kernel.at("slot_bytes").get<uint64_t>() * slots;
    if (rule.at("rule") == "tiles") {
        const uint64_t tiles = ceil_div(leaves, rule.at("leaves_per_block").get<uint64_t>());
        const uint64_t run = rule.at("partials_per_run").get<uint64_t>();
        const uint64_t folding = tiles == 1 ? 0 : tiles <= 2 * run ? 1 : ceil_div(tiles, run);
        grid.blocks = uint32_t(tiles + folding);
        grid.cluster = 1;
        grid.count = tiles;
    } else {
        grid.blocks = grid.cluster = rule.value("cluster", 1u);
        grid.count = rule.at("count").get<uint64_t>();
    }
    return grid;
}

struct Argument {
    const Json& layout;
    Bytes bytes;

    explicit Argument(const Json& of) : layout(of), bytes(of.at("bytes").get<size_t>()) {}

    void set(const std::string& name, uint64_t value)
    {
        for (const Json& field : layout.at("fields")) {
            if (field.at("name") != name) continue;
            for (size_t i = 0; i < 8; ++i) bytes.at(field.at("offset").get<size_t>() + i) = uint8_t(value >> 8 * i);
            return;
        }
        fail("the argument has no field " + name);
    }
};

// -- the driver, loaded when it is needed -----------------------------------------------------------------------------------

#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)  // cuda.h renames some: cuMemAlloc is cuMemAlloc_v2
#define DRIVER(name) (reinterpret_cast<decltype(&::name)>(symbol(NAME_OF(name))))
#define CALL(name, ...) check(NAME_OF(name), DRIVER(name)(__VA_ARGS__))

static void* symbol(const char* name)
{
    static void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) fail("there is no NVIDIA driver: libcuda.so.1 cannot be loaded");
    void* found = dlsym(library, name);
    if (found == nullptr) fail(std::string("the driver has no ") + name);
    return found;
}

static void check(const char* call, CUresult code)
{
    if (code == CUDA_SUCCESS) return;
    const char* text = nullptr;
    DRIVER(cuGetErrorName)(code, &text);
    fail(std::string(call) + ": " + (text == nullptr ? "an unknown error" : text));
}

static double sum_on_device(const std::filesystem::path& directory, const std::vector<float>& x)
{
    CUdevice device;
    CUcontext context;
    int major, minor;
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    CALL(cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);

    Wheel wheel(directory, "sm_" + std::to_string(major) + std::to_string(minor));
    const Json& kernel = wheel.whole("sum", "float32", x.size());
    const std::string entry = kernel.at("entry").get<std::string>();
    const Bytes code = wheel.cubin(kernel);
    const Grid grid = grid_of(wheel.manifest, kernel, x.size());
    CUlibrary library;
    CUkernel handle;
    CALL(cuLibraryLoadData, &library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    CALL(cuLibraryGetKernel, &handle, library, entry.c_str());

    const size_t bytes = x.size() * sizeof(float);
    CUdeviceptr elements, result, workspace;
    CALL(cuMemAlloc, &elements, std::max<size_t>(bytes, 16));
    CALL(cuMemAlloc, &result, sizeof(float));
    CALL(cuMemAlloc, &workspace, grid.workspace_bytes);
    if (bytes > 0) CALL(cuMemcpyHtoD, elements, x.data(), bytes);
    CALL(cuMemsetD8, workspace, 0, grid.workspace_bytes);  // once: each launch leaves it as it found it

    Argument argument(wheel.manifest.at("arguments").at(kernel.at("argument").get<std::string>()));
    argument.set("elements", elements);
    argument.set("result", result);
    argument.set("workspace", workspace);
    argument.set("length", x.size());
    argument.set("rows", 1);
    argument.set("count", grid.count);
    argument.set("initial[0]", kernel.at("initial").at(0).get<uint64_t>());
    argument.set("initial[1]", kernel.at("initial").at(1).get<uint64_t>());

    CUlaunchAttribute cluster{};
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim.x = grid.cluster;
    cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
    CUlaunchConfig config{};
    config.gridDimX = grid.blocks;
    config.blockDimX = grid.threads;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.attrs = &cluster;
    config.numAttrs = grid.cluster > 1 ? 1 : 0;
    void* arguments[] = {argument.bytes.data()};
    float sum = 0;
    for (int launch = 0; launch < 2; ++launch) {  // the workspace is used again
        CALL(cuLaunchKernelEx, &config, reinterpret_cast<CUfunction>(handle), arguments, nullptr);
        CALL(cuMemcpyDtoH, &sum, result, sizeof sum);
    }
    std::cout << entry << ": " << grid.blocks << " blocks of " << grid.threads << " threads\n";

    for (CUdeviceptr pointer : {elements, result, workspace}) CALL(cuMemFree, pointer);
    CALL(cuLibraryUnload, library);
    CALL(cuDevicePrimaryCtxRelease, device);
    return sum;
}

static int list(const std::filesystem::path& directory)
{
    size_t kernels = 0;
    for (const auto& file : std::filesystem::directory_iterator(directory)) {
        if (file.path().extension() != ".json") continue;
        Wheel wheel(directory, file.path().stem().string());
        for (const Json& kernel : wheel.manifest.at("kernels")) {
            const Bytes code = wheel.cubin(kernel);
            if (code.size() < 4 || std::string(code.begin(), code.begin() + 4) != "\x7f" "ELF") fail("no cubin");
            ++kernels;
        }
    }
    std::cout << kernels << " kernels, and every digest matches\n";
    return kernels == 0;
}

int main(int count, char** arguments)
{
    if (count != 3) {
        std::cerr << "usage: launch_from_wheel DIRECTORY N, or DIRECTORY --list\n";
        return 2;
    }
    try {
        if (std::string(arguments[2]) == "--list") return list(arguments[1]);
        const uint64_t n = std::strtoull(arguments[2], nullptr, 10);
        std::vector<float> x(n);
        for (uint64_t i = 0; i < n; ++i) x[i] = float(i % 1024);
        double expected = 0;
        for (float value : x) expected += value;
        const double sum = sum_on_device(arguments[1], x);
        std::cout << "sum " << sum << ", expected " << float(expected) << "\n";
        return sum == double(float(expected)) ? 0 : 1;
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 2;
    }
}
