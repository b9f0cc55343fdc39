// A plugin of QEMU that prints how many instructions a program for another processor executed.
//
//   gcc -O1 -shared -fPIC benchmark/qemu_instructions.c -o build/qemu_instructions.so
//   QEMU_CPU=neoverse-n1 qemu-aarch64 -L ROOT -plugin build/qemu_instructions.so PROGRAM ...
//
// Debian's qemu-user has plugins, qemu-user-static has none. It has no header for them, so what is
// used of it is declared here.

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

struct qemu_plugin_tb;
typedef void TranslateCallback(uint64_t id, struct qemu_plugin_tb* block);
typedef void ExitCallback(uint64_t id, void* data);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, TranslateCallback* callback);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb* block, int operation,
                                              void* counter, uint64_t amount);
void qemu_plugin_register_atexit_cb(uint64_t id, ExitCallback* callback, void* data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* block);

int qemu_plugin_version = 1;

static uint64_t instructions;

static void Translate(uint64_t id, struct qemu_plugin_tb* block) {
  (void)id;
  const int add = 0;
  qemu_plugin_register_vcpu_tb_exec_inline(block, add, &instructions,
                                           qemu_plugin_tb_n_insns(block));
}

static void Print(uint64_t id, void* data) {
  (void)id;
  (void)data;
  fprintf(stderr, "instructions %" PRIu64 "\n", instructions);
}

int qemu_plugin_install(uint64_t id, const void* machine, int count, char** arguments) {
  (void)machine;
  (void)count;
  (void)arguments;
  qemu_plugin_register_vcpu_tb_trans_cb(id, Translate);
  qemu_plugin_register_atexit_cb(id, Print, NULL);
  return 0;
}
