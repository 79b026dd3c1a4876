/* The simulated driver, as NVML and nvidia-smi both see it: NVML's own return codes for everything. */
#ifndef LAB_H
#define LAB_H
#include "state.h"

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15, RESET_REQUIRED = 16, LIB_RM_VERSION_MISMATCH = 18,
    VERSION_MISMATCH = 25, DEPRECATED = 26, UNKNOWN = 999,
};

enum { REASON_IDLE = 1, REASON_POWER_CAP = 4, REASON_THERMAL = 0x20 };
enum { PASCAL = 4, VOLTA = 5, TURING = 6, AMPERE = 7 };

/* A copy of the node's state as it is now; it hangs here while the fault "hang" is on. */
int lab_look(struct lab_node *copy);
/* The state itself, locked; give it back with lab_release. Needs root, as the real driver does. */
int lab_hold(struct lab_node **node);
void lab_release(struct lab_node *node);

const char *lab_words(int code);
unsigned lab_branch(const struct lab_node *node);
int lab_alive(const struct lab_card *card);

unsigned lab_enforced_mw(const struct lab_card *card);
int lab_limit(const struct lab_card *card, unsigned *milliwatts);
int lab_enforced(const struct lab_card *card, unsigned *milliwatts);
int lab_default(const struct lab_card *card, unsigned *milliwatts);
int lab_least(const struct lab_card *card, unsigned *milliwatts);
int lab_most(const struct lab_card *card, unsigned *milliwatts);
int lab_power(const struct lab_card *card, unsigned *milliwatts);
int lab_average(const struct lab_node *node, const struct lab_card *card, unsigned *milliwatts);
int lab_instant(const struct lab_node *node, const struct lab_card *card, unsigned *milliwatts);
int lab_energy(const struct lab_card *card, unsigned long long *millijoules);
int lab_sm(const struct lab_card *card, unsigned *mhz);
int lab_memory_clock(const struct lab_card *card, unsigned *mhz);
int lab_sm_max(const struct lab_card *card, unsigned *mhz);
int lab_memory_max(const struct lab_card *card, unsigned *mhz);
int lab_fan(const struct lab_card *card, unsigned *percent);
int lab_temperature(const struct lab_card *card, unsigned *celsius);
int lab_memory_temperature(const struct lab_card *card, unsigned *celsius);
int lab_utilization(const struct lab_card *card, unsigned *gpu, unsigned *memory);
int lab_used(const struct lab_card *card, unsigned long long *bytes);
int lab_target(const struct lab_card *card, unsigned *celsius);

/* Settings. Each checks as the driver does: lost, permission, support, range. */
int lab_set_limit(struct lab_card *card, unsigned milliwatts);
int lab_set_gpu_lock(struct lab_card *card, unsigned least, unsigned most);
int lab_set_memory_lock(struct lab_card *card, unsigned least, unsigned most);
int lab_set_persistence(struct lab_card *card, unsigned on);
int lab_set_target(struct lab_card *card, unsigned celsius);
#endif
