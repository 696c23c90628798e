/* A ROCm machine with one GPU that nobody asks to compute: for the real mori library on a CPU.
 *
 * The library looks for GPUs while it chooses a NIC, and ends the process if there is none. The
 * other symbols of ROCm, libnuma, libpci, protobuf and gRPC that it is linked with are generated
 * (build.py) and never called by transfers between host buffers.
 */
#include <stdbool.h>
#include <stdint.h>

int rsmi_init(uint64_t flags) {
    (void)flags;
    return 0;
}

int rsmi_shut_down(void) { return 0; }

int rsmi_num_monitor_devices(uint32_t *count) {
    *count = 1;
    return 0;
}

int rsmi_dev_pci_id_get(uint32_t gpu, uint64_t *id) {
    (void)gpu;
    *id = 0x100; /* 0000:01:00.0 */
    return 0;
}

int rsmi_is_P2P_accessible(uint32_t from, uint32_t to, bool *accessible) {
    (void)from, (void)to;
    *accessible = false;
    return 0;
}

int rsmi_topo_get_link_type(uint32_t from, uint32_t to, uint64_t *hops, int *type) {
    (void)from, (void)to;
    *hops = 0;
    *type = 0;
    return 0;
}

int rsmi_topo_get_link_weight(uint32_t from, uint32_t to, uint64_t *weight) {
    (void)from, (void)to;
    *weight = 0;
    return 0;
}

int rsmi_status_string(int status, const char **text) {
    (void)status;
    *text = "success";
    return 0;
}
