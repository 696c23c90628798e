/* A verbs provider whose NIC is this process's memory, for the real mori library on a CPU.
 *
 * It stands in for libibverbs.so.1. One device with one port; queue pairs of one process reach
 * each other. Work requests of a queue pair run in order, each a little after it was posted, and
 * their bytes are really moved. A test scripts what goes wrong by the functions at the end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_OWNERS = 4096, MAX_MRS = 1 << 16, MAX_QPS = 1 << 16, MAX_EVENTS = 64, MAX_SGE = 16 };
static const double LATENCY_S = 0.002, BYTES_PER_S = 50e9;

struct request { /* one posted work request */
    uint64_t wr_id, remote_addr;
    uint32_t rkey, imm_data, length;
    enum ibv_wr_opcode opcode;
    struct ibv_sge sge[MAX_SGE];
    int num_sge, signaled, has_inline_data, is_landed, is_lost, is_fatal;
    enum ibv_wc_status status;
    double land_at, complete_at;
    unsigned char inline_data[256];
    struct request *next;
};

struct receive {
    uint64_t wr_id;
    struct ibv_sge sge[MAX_SGE];
    int num_sge;
    struct receive *next;
};

struct completion {
    struct ibv_wc wc;
    struct completion *next;
};

struct asked { /* of the newest queue pair of an engine, and of its newest memory region */
    uint32_t max_send_wr, max_recv_wr, max_cqe, max_sge, max_inline, path_mtu, hop_limit;
    uint32_t min_rnr_timer, timeout, retry_count, rnr_retry, max_rd_atomic, region_access;
};

struct owner { /* an engine: what it did, and what a test has scripted for it */
    uint64_t num_requests, num_posts, num_queue_pairs, num_regions, num_regions_left;
    struct asked asked;
    enum ibv_wc_status fail_status, fail_send_status;
    int fail_request, lose_completions, is_refusing, refuse_after, refuse_sends;
    double held_until;
};

struct context { /* an opened device; an engine opens several */
    struct ibv_context ibv;
    struct owner *owner;
    struct ibv_async_event events[MAX_EVENTS];
    int first_event, num_events;
    struct context *next;
};

struct queue_pair {
    struct ibv_qp ibv;
    uint32_t peer;
    int retry_count, rnr_retry, ack_timeout, is_broken;
    struct request *first, *last;
    struct receive *first_receive, *last_receive;
};

struct queue {
    struct ibv_cq ibv;
    struct completion *first, *last;
};

struct region {
    struct ibv_mr ibv;
    int is_used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct owner owners[MAX_OWNERS], *owner = owners;
static struct context *contexts;
static struct queue_pair *queue_pairs[MAX_QPS];
static struct region *regions[MAX_MRS];
static int num_devices = 1;
static uint32_t last_queue_pair, last_region;
static struct ibv_device device = {.node_type = IBV_NODE_CA,
                                   .transport_type = IBV_TRANSPORT_IB,
                                   .name = "cpu0",
                                   .dev_name = "uverbs0",
                                   .dev_path = "/dev/infiniband/uverbs0"};

/* The library looks for a PCI address in the real path of the device: a directory beside us. */
__attribute__((constructor)) static void name_device(void) {
    Dl_info self;
    if (!dladdr((void *)name_device, &self)) abort();
    const char *slash = strrchr(self.dli_fname, '/');
    int length = slash ? (int)(slash - self.dli_fname) : 1;
    snprintf(device.ibdev_path, sizeof device.ibdev_path, "%.*s/0000:02:00.0/cpu0", length,
             slash ? self.dli_fname : ".");
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static struct owner *owner_of(struct ibv_context *c) { return ((struct context *)c)->owner; }

/* ------------------------------------------------------------------ memory */

static int covers(uint32_t key, uint64_t address, uint64_t length) {
    struct region *region = key < MAX_MRS ? regions[key] : NULL;
    uint64_t start = region ? (uint64_t)region->ibv.addr : 0;
    return region && region->is_used && address >= start &&
           address + length <= start + region->ibv.length;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    struct region *region = calloc(1, sizeof *region);
    struct owner *by = owner_of(pd->context);
    pthread_mutex_lock(&lock);
    uint32_t key = ++last_region;
    region->ibv = (struct ibv_mr){pd->context, pd, addr, length, key, key, key};
    region->is_used = 1;
    regions[key] = region;
    by->num_regions++, by->num_regions_left++;
    by->asked.region_access = access;
    pthread_mutex_unlock(&lock);
    return &region->ibv;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    return reg_mr(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned int access) {
    (void)iova;
    return reg_mr(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access) {
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    errno = EOPNOTSUPP;
    return NULL;
}

int ibv_dereg_mr(struct ibv_mr *mr) {
    pthread_mutex_lock(&lock);
    ((struct region *)mr)->is_used = 0; /* kept: a late request may still name its key */
    owner_of(mr->context)->num_regions_left--;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ----------------------------------------------------------- running requests */

static void complete(struct ibv_cq *cq, struct ibv_wc wc) {
    struct queue *queue = (struct queue *)cq;
    struct completion *completion = calloc(1, sizeof *completion);
    completion->wc = wc;
    if (queue->last)
        queue->last->next = completion;
    else
        queue->first = completion;
    queue->last = completion;
}

static struct queue_pair *peer_of(struct queue_pair *qp) {
    struct queue_pair *peer = qp->peer < MAX_QPS ? queue_pairs[qp->peer] : NULL;
    return peer && peer->peer == qp->ibv.qp_num && !peer->is_broken ? peer : NULL;
}

static double retry_budget(const struct queue_pair *qp) {
    return 4.096e-6 * (double)(1u << qp->ack_timeout) * (qp->retry_count + 1);
}

static int is_send(const struct request *request) {
    return request->opcode == IBV_WR_SEND || request->opcode == IBV_WR_SEND_WITH_IMM;
}

static void copy_in(unsigned char *to, const struct request *request) {
    if (request->has_inline_data) {
        memcpy(to, request->inline_data, request->length);
        return;
    }
    for (int i = 0; i < request->num_sge; to += request->sge[i++].length)
        memcpy(to, (void *)request->sge[i].addr, request->sge[i].length);
}

static enum ibv_wc_status deliver(struct queue_pair *peer, struct request *request) {
    struct receive *receive = peer->first_receive;
    if (!receive) return IBV_WC_RNR_RETRY_EXC_ERR;
    peer->first_receive = receive->next;
    if (!peer->first_receive) peer->last_receive = NULL;
    if (request->length) copy_in((unsigned char *)receive->sge[0].addr, request);
    complete(peer->ibv.recv_cq, (struct ibv_wc){.wr_id = receive->wr_id,
                                                .status = IBV_WC_SUCCESS,
                                                .opcode = IBV_WC_RECV,
                                                .byte_len = request->length,
                                                .qp_num = peer->ibv.qp_num});
    free(receive);
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status land(struct queue_pair *qp, struct request *request) {
    struct queue_pair *peer = peer_of(qp);
    if (!peer) return IBV_WC_RETRY_EXC_ERR;
    if (!request->has_inline_data)
        for (int i = 0; i < request->num_sge; i++)
            if (request->sge[i].length &&
                !covers(request->sge[i].lkey, request->sge[i].addr, request->sge[i].length))
                return IBV_WC_LOC_PROT_ERR;
    if (is_send(request)) return deliver(peer, request);
    if (request->length && !covers(request->rkey, request->remote_addr, request->length))
        return IBV_WC_REM_ACCESS_ERR;
    if (request->opcode == IBV_WR_RDMA_WRITE) {
        copy_in((unsigned char *)request->remote_addr, request);
        return IBV_WC_SUCCESS;
    }
    unsigned char *from = (unsigned char *)request->remote_addr;
    for (int i = 0; i < request->num_sge; from += request->sge[i++].length)
        memcpy((void *)request->sge[i].addr, from, request->sge[i].length);
    return IBV_WC_SUCCESS;
}

static void finish(struct queue_pair *qp, struct request *request, enum ibv_wc_status status) {
    int is_read = request->opcode == IBV_WR_RDMA_READ;
    if ((request->signaled || status != IBV_WC_SUCCESS) && !request->is_lost)
        complete(qp->ibv.send_cq,
                 (struct ibv_wc){.wr_id = request->wr_id,
                                 .status = status,
                                 .opcode = is_read   ? IBV_WC_RDMA_READ
                                           : is_send(request) ? IBV_WC_SEND
                                                              : IBV_WC_RDMA_WRITE,
                                 .byte_len = request->length,
                                 .qp_num = qp->ibv.qp_num});
    if (status != IBV_WC_SUCCESS) qp->is_broken = 1;
}

/* A send to a peer without a posted receive is repeated for ever if the retry count says so. */
static int is_stalled(struct queue_pair *qp, const struct request *request) {
    enum { FOR_EVER = 7 };
    struct queue_pair *peer = peer_of(qp);
    return is_send(request) && qp->rnr_retry == FOR_EVER && peer && !peer->first_receive;
}

/* Land and complete what is due, in posting order. The lock is held. */
static void run(struct queue_pair *qp) {
    double t = now();
    for (struct request *r = qp->first; r && r->land_at <= t && !qp->is_broken; r = r->next) {
        if (r->is_landed) continue;
        if (r->status == IBV_WC_SUCCESS && is_stalled(qp, r)) break;
        if (r->status == IBV_WC_SUCCESS) r->status = land(qp, r);
        r->is_landed = 1;
        if (r->status == IBV_WC_RETRY_EXC_ERR) r->complete_at += retry_budget(qp);
        if (r->status != IBV_WC_SUCCESS) break;
    }
    while (qp->first && (qp->is_broken || (qp->first->is_landed && qp->first->complete_at <= t))) {
        struct request *request = qp->first;
        qp->first = request->next;
        if (!qp->first) qp->last = NULL;
        finish(qp, request, qp->is_broken ? IBV_WC_WR_FLUSH_ERR : request->status);
        free(request);
    }
}

/* --------------------------------------------------------------- data path */

static struct request *make_request(struct owner *by, struct queue_pair *qp,
                                    struct ibv_send_wr *wr) {
    struct request *request = calloc(1, sizeof *request);
    request->wr_id = wr->wr_id;
    request->opcode = wr->opcode;
    request->remote_addr = wr->wr.rdma.remote_addr;
    request->rkey = wr->wr.rdma.rkey;
    request->num_sge = wr->num_sge;
    request->signaled = !!(wr->send_flags & IBV_SEND_SIGNALED);
    for (int i = 0; i < wr->num_sge; i++) {
        request->sge[i] = wr->sg_list[i];
        request->length += wr->sg_list[i].length;
    }
    if (wr->send_flags & IBV_SEND_INLINE && request->length <= sizeof request->inline_data) {
        copy_in(request->inline_data, request);
        request->has_inline_data = 1;
    }
    double t = now(), after = qp->last ? qp->last->land_at : 0;
    request->land_at = (after > t + LATENCY_S ? after : t + LATENCY_S) + request->length / BYTES_PER_S;
    request->complete_at = request->land_at > by->held_until ? request->land_at : by->held_until;
    return request;
}

static void script(struct owner *by, struct request *request, int number) {
    if (is_send(request) && by->fail_send_status) {
        request->status = by->fail_send_status;
        by->fail_send_status = IBV_WC_SUCCESS;
    }
    if (!is_send(request) && by->fail_status && number == by->fail_request) {
        request->status = by->fail_status;
        by->fail_status = IBV_WC_SUCCESS;
    }
    if (request->signaled && by->lose_completions) {
        request->is_lost = 1;
        by->lose_completions--;
    }
}

static int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct queue_pair *qp = (struct queue_pair *)ibv;
    struct owner *by = owner_of(ibv->context);
    int result = 0, number = 0;
    pthread_mutex_lock(&lock);
    run(qp);
    int limit = by->is_refusing ? by->refuse_after : -1;
    by->is_refusing = 0;
    if (wr && wr->opcode == IBV_WR_SEND && by->refuse_sends) {
        by->refuse_sends--;
        limit = 0;
    }
    by->num_posts += limit != 0;
    for (; wr; wr = wr->next, number++) {
        if (number == limit || wr->num_sge > MAX_SGE) {
            *bad = wr;
            result = ENOMEM;
            break;
        }
        struct request *request = make_request(by, qp, wr);
        script(by, request, number);
        by->num_requests++;
        if (qp->last)
            qp->last->next = request;
        else
            qp->first = request;
        qp->last = request;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct queue_pair *qp = (struct queue_pair *)ibv;
    (void)bad;
    pthread_mutex_lock(&lock);
    for (; wr; wr = wr->next) {
        struct receive *receive = calloc(1, sizeof *receive);
        receive->wr_id = wr->wr_id;
        receive->num_sge = wr->num_sge;
        for (int i = 0; i < wr->num_sge && i < MAX_SGE; i++) receive->sge[i] = wr->sg_list[i];
        if (qp->last_receive)
            qp->last_receive->next = receive;
        else
            qp->first_receive = receive;
        qp->last_receive = receive;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static int poll_cq(struct ibv_cq *ibv, int wanted, struct ibv_wc *wc) {
    struct queue *queue = (struct queue *)ibv;
    int found = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 1; i <= last_queue_pair; i++)
        if (queue_pairs[i] && queue_pairs[i]->first && queue_pairs[i]->ibv.send_cq == ibv)
            run(queue_pairs[i]);
    while (found < wanted && queue->first) {
        struct completion *completion = queue->first;
        wc[found++] = completion->wc;
        queue->first = completion->next;
        if (!queue->first) queue->last = NULL;
        free(completion);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only) {
    (void)cq, (void)solicited_only;
    return 0; /* mori polls even in EVENT mode */
}

/* ----------------------------------------------------------------- devices */

struct ibv_device **ibv_get_device_list(int *count) {
    struct ibv_device **list = calloc(2, sizeof *list);
    if (num_devices) list[0] = &device;
    if (count) *count = num_devices;
    return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }

struct ibv_context *ibv_open_device(struct ibv_device *opened) {
    struct context *context = calloc(1, sizeof *context);
    context->ibv.device = opened;
    context->ibv.ops.post_send = post_send;
    context->ibv.ops.post_recv = post_recv;
    context->ibv.ops.poll_cq = poll_cq;
    context->ibv.ops.req_notify_cq = req_notify_cq;
    context->ibv.async_fd = eventfd(0, EFD_SEMAPHORE);
    context->ibv.num_comp_vectors = 1;
    pthread_mutex_lock(&lock);
    context->owner = owner;
    context->next = contexts;
    contexts = context;
    pthread_mutex_unlock(&lock);
    return &context->ibv;
}

int ibv_close_device(struct ibv_context *context) {
    close(context->async_fd); /* the rest stays readable for tests */
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    (void)context;
    *attr = (struct ibv_device_attr){.max_mr_size = ~0ull,
                                     .vendor_id = 0x15b3,
                                     .max_qp = 1 << 15,
                                     .max_qp_wr = 32768,
                                     .max_sge = MAX_SGE,
                                     .max_cq = 1 << 15,
                                     .max_cqe = 1 << 22,
                                     .max_mr = MAX_MRS,
                                     .max_pd = 1024,
                                     .max_qp_rd_atom = 16,
                                     .max_qp_init_rd_atom = 16,
                                     .phys_port_cnt = 1};
    return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compat) {
    struct ibv_port_attr *attr = (struct ibv_port_attr *)compat;
    (void)context, (void)port;
    memset(attr, 0, offsetof(struct ibv_port_attr, port_cap_flags2));
    attr->state = IBV_PORT_ACTIVE;
    attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
    attr->gid_tbl_len = 4;
    attr->max_msg_sz = 1u << 30;
    attr->pkey_tbl_len = 1;
    attr->active_width = 2;
    attr->active_speed = 128;
    attr->phys_state = 5;
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    static const uint8_t mapped_ipv4[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    (void)context, (void)port, (void)index;
    memcpy(gid->raw, mapped_ipv4, sizeof mapped_ipv4);
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    pd->context = context;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd) {
    free(pd);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
    channel->context = context;
    channel->fd = eventfd(0, EFD_NONBLOCK);
    return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    close(channel->fd);
    free(channel);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
    (void)channel, (void)cq, (void)cq_context;
    errno = EAGAIN;
    return -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count) { (void)cq, (void)count; }

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector) {
    struct queue *queue = calloc(1, sizeof *queue);
    (void)vector;
    queue->ibv.context = context;
    queue->ibv.channel = channel;
    queue->ibv.cq_context = cq_context;
    queue->ibv.cqe = cqe;
    return &queue->ibv;
}

int ibv_destroy_cq(struct ibv_cq *cq) {
    free(cq);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    struct queue_pair *qp = calloc(1, sizeof *qp);
    qp->ibv.context = pd->context;
    qp->ibv.qp_context = attr->qp_context;
    qp->ibv.pd = pd;
    qp->ibv.send_cq = attr->send_cq;
    qp->ibv.recv_cq = attr->recv_cq;
    qp->ibv.qp_type = attr->qp_type;
    pthread_mutex_lock(&lock);
    qp->ibv.qp_num = ++last_queue_pair;
    queue_pairs[qp->ibv.qp_num] = qp;
    struct owner *by = owner_of(pd->context);
    by->num_queue_pairs++;
    by->asked.max_send_wr = attr->cap.max_send_wr;
    by->asked.max_recv_wr = attr->cap.max_recv_wr;
    by->asked.max_sge = attr->cap.max_send_sge;
    by->asked.max_inline = attr->cap.max_inline_data;
    by->asked.max_cqe = attr->send_cq->cqe;
    pthread_mutex_unlock(&lock);
    return &qp->ibv;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask) {
    struct queue_pair *qp = (struct queue_pair *)ibv;
    struct asked *asked = &owner_of(ibv->context)->asked;
    pthread_mutex_lock(&lock);
    if (mask & IBV_QP_STATE) ibv->state = attr->qp_state;
    if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR) qp->is_broken = 1;
    if (mask & IBV_QP_DEST_QPN) qp->peer = attr->dest_qp_num;
    if (mask & IBV_QP_RETRY_CNT) asked->retry_count = qp->retry_count = attr->retry_cnt;
    if (mask & IBV_QP_RNR_RETRY) asked->rnr_retry = qp->rnr_retry = attr->rnr_retry;
    if (mask & IBV_QP_TIMEOUT) asked->timeout = qp->ack_timeout = attr->timeout;
    if (mask & IBV_QP_PATH_MTU) asked->path_mtu = attr->path_mtu;
    if (mask & IBV_QP_AV) asked->hop_limit = attr->ah_attr.grh.hop_limit;
    if (mask & IBV_QP_MIN_RNR_TIMER) asked->min_rnr_timer = attr->min_rnr_timer;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) asked->max_rd_atomic = attr->max_rd_atomic;
    pthread_mutex_unlock(&lock);
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *ibv) {
    struct queue_pair *qp = (struct queue_pair *)ibv;
    pthread_mutex_lock(&lock);
    queue_pairs[ibv->qp_num] = NULL; /* what is posted never lands */
    for (struct request *r = qp->first, *next; r; r = next) next = r->next, free(r);
    for (struct receive *r = qp->first_receive, *next; r; r = next) next = r->next, free(r);
    pthread_mutex_unlock(&lock);
    free(qp);
    return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    (void)pd, (void)attr;
    errno = EOPNOTSUPP;
    return NULL;
}

int ibv_destroy_srq(struct ibv_srq *srq) {
    (void)srq;
    return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status) {
    static const char *const texts[] = {"success",
                                        "local length error",
                                        "local QP operation error",
                                        "local EE context operation error",
                                        "local protection error",
                                        "Work Request Flushed Error",
                                        "memory management operation error",
                                        "bad response error",
                                        "local access error",
                                        "remote invalid request error",
                                        "remote access error",
                                        "remote operation error",
                                        "transport retry counter exceeded",
                                        "RNR retry counter exceeded"};
    return status < sizeof texts / sizeof *texts ? texts[status] : "unknown";
}

/* ------------------------------------------------------------------ events */

int ibv_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event) {
    struct context *context = (struct context *)ibv;
    uint64_t one;
    if (read(ibv->async_fd, &one, sizeof one) != sizeof one) return -1;
    pthread_mutex_lock(&lock);
    *event = context->events[context->first_event++ % MAX_EVENTS];
    context->num_events--;
    pthread_mutex_unlock(&lock);
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }

/* ----------------------------------------------------------- for test scripts */

/* Devices that are opened from now on belong to engine number `by`. */
void script_owner(int by) { owner = &owners[by]; }

void script_set_devices(int count) { num_devices = count; }
uint64_t script_requests(int by) { return owners[by].num_requests; }
uint64_t script_posts(int by) { return owners[by].num_posts; }
uint64_t script_queue_pairs(int by) { return owners[by].num_queue_pairs; }
uint64_t script_regions(int by) { return owners[by].num_regions; }
uint64_t script_regions_left(int by) { return owners[by].num_regions_left; }
struct asked script_asked(int by) { return owners[by].asked; }

/* The next posted chain fails at `request` with a status of enum ibv_wc_status. */
void script_fail(int by, int status, int request) {
    owners[by].fail_status = status;
    owners[by].fail_request = request;
}

void script_fail_send(int by, int status) { owners[by].fail_send_status = status; }

/* The next completion never comes; the bytes land. */
void script_lose(int by) { owners[by].lose_completions++; }

/* Completions of what is posted from now on come not before so many seconds from now. */
void script_hold(int by, double seconds) { owners[by].held_until = now() + seconds; }

/* The next post takes only its first `count` requests. */
void script_refuse(int by, int count) {
    owners[by].is_refusing = 1;
    owners[by].refuse_after = count;
}

void script_refuse_send(int by) { owners[by].refuse_sends++; }

static struct queue_pair *first_queue_pair(struct owner *by) {
    for (uint32_t i = 1; i <= last_queue_pair; i++)
        if (queue_pairs[i] && owner_of(queue_pairs[i]->ibv.context) == by) return queue_pairs[i];
    return NULL;
}

/* Tell what the event is about; -1 if nothing here could be that. */
static int set_element(struct ibv_async_event *event, struct queue_pair *qp) {
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        event->element.qp = &qp->ibv;
        return 0;
    case IBV_EVENT_CQ_ERR:
        event->element.cq = qp->ibv.send_cq;
        return 0;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
    case IBV_EVENT_WQ_FATAL:
        return -1;
    default:
        event->element.port_num = 1;
        return 0;
    }
}

/* An asynchronous event, a number of enum ibv_event_type, about the first queue pair, its
 * completion queue, port or device. Returns -1 if the engine has no such thing. */
int script_event(int by, int type) {
    struct ibv_async_event event = {.event_type = type};
    uint64_t one = 1;
    pthread_mutex_lock(&lock);
    struct queue_pair *qp = first_queue_pair(&owners[by]);
    int result = qp ? set_element(&event, qp) : -1;
    if (result == 0) {
        struct context *context = (struct context *)qp->ibv.context;
        context->events[(context->first_event + context->num_events++) % MAX_EVENTS] = event;
        if (write(context->ibv.async_fd, &one, sizeof one) < 0) abort();
    }
    pthread_mutex_unlock(&lock);
    return result;
}
