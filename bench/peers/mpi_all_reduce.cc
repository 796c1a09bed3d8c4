// mpi_all_reduce FOLDER: MPI_Allreduce under the peer harness. Compiled once with each MPI's own
// compiler wrapper, and started by that MPI's mpirun.
#include <mpi.h>

#include "peer_harness.h"

namespace {

class Mpi {
 public:
  static int rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }
  static int size() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
  }
  static float slack() { return 0; }
  // A count above 2^31 does not occur: 256 MiB are 2^26 values.
  static void all_reduce(const float* in, float* out, size_t count) {
    MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }
  static void max(double* values, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: mpi_all_reduce FOLDER\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  Mpi mpi;
  const bool bound = tersum::peers::bind_rank(argv[1], Mpi::rank());
  const int status = tersum::peers::Harness<Mpi>(mpi, argv[1], bound).run();
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return 0;
}
