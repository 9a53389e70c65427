/* Stands in for libcuda.so.1 and libnccl.so.2: GPUs whose memory is this computer's. Signatures are those of
 * cuda.h and nccl.h. WRONG names a GPU whose sums are wrong, HANG lets the first all-reduce never end. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS 3
static int current, grouped;
static struct { const float *send; float *receive; size_t count; } asked[GPUS];

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGetCount(int *count) { *count = GPUS; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return number < GPUS ? 0 : 101; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(device + 1); return 0; }
int cuCtxSetCurrent(void *context) { current = (int)(intptr_t)context; return current ? 0 : 201; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(uint64_t *at, size_t size) { *at = (uint64_t)(uintptr_t)malloc(size); return current ? 0 : 201; }
int cuMemsetD32_v2(uint64_t at, unsigned bits, size_t count) {
  for (size_t each = 0; each < count; each++) memcpy((char *)(uintptr_t)at + 4 * each, &bits, 4);
  return 0;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { memcpy(to, (void *)(uintptr_t)from, size); return 0; }
int cuStreamCreate(void **stream, unsigned flags) { *stream = (void *)(intptr_t)current; return flags == 1 ? 0 : 1; }
int cuEventCreate(void **event, unsigned flags) { *event = malloc(1); return flags; }
int cuEventRecord(void *event, void *stream) { return event && (int)(intptr_t)stream == current ? 0 : 400; }
int cuEventSynchronize(void *event) { return event ? 0 : 400; }
int cuEventElapsedTime(float *ms, void *begin, void *end) { *ms = 400; return begin && end ? 0 : 400; }
int cuGetErrorString(int code, const char **text) { *text = code == 201 ? "invalid device context" : "error"; return 0; }

int ncclCommInitAll(void **comms, int count, const int *devices) {
  for (int each = 0; each < count; each++) comms[each] = (void *)(intptr_t)(devices[each] + 1);
  return 0;
}
int ncclGroupStart(void) { grouped = 0; return 0; }
int ncclAllReduce(const void *send, void *receive, size_t count, int type, int operation, void *comm, void *stream) {
  int rank = (int)(intptr_t)comm - 1;
  if (type != 7 || operation != 0 || (int)(intptr_t)stream - 1 != rank) return 4;
  asked[rank].send = send, asked[rank].receive = receive, asked[rank].count = count;
  grouped++;
  return 0;
}
int ncclGroupEnd(void) {
  const char *wrong = getenv("WRONG");
  if (getenv("HANG")) pause();
  if (grouped != GPUS) return 5;
  for (size_t at = 0; at < asked[0].count; at++) {
    float sum = 0;
    for (int rank = 0; rank < GPUS; rank++) sum += asked[rank].send[at];
    for (int rank = 0; rank < GPUS; rank++) asked[rank].receive[at] = sum + (wrong && atoi(wrong) == rank && !at);
  }
  return 0;
}
const char *ncclGetErrorString(int code) { return code == 4 ? "invalid argument" : "invalid usage"; }
