/* The inside of the manager, shared by manager.c, sweep.c, live.c, effects.c and tools.c. */
#ifndef SESSION_LIVE_H
#define SESSION_LIVE_H

#include "base/lock.h"
#include "session/log.h"
#include "session/log_index.h"
#include "session/manager.h"
#include "session/projection.h"
#include "session/sandboxes.h"
#include "session/spend.h"
#include "session/turn.h"

#define LIVE_MAGIC 0x11fe5e55u
#define LIVE_BUCKETS 1024
#define MAILBOX_BYTES_MAX (16u << 20) /* beyond this, posts that may block do */
#define BATCH_MAX 128                 /* messages handled under one fsync */
#define TOOL_THREADS_MAX 512

enum message_kind {
    MESSAGE_INPUT, /* feed `input` to the turn machine */
    MESSAGE_WAKE,  /* look into the inbox */
    MESSAGE_WITHDRAW,
    MESSAGE_STOP_SANDBOX, /* R30, unless it is running again */
    MESSAGE_END,          /* deleted: drop everything */
    MESSAGE_OPEN,         /* bytes: what the working directory holds for Pi; opens the host */
    MESSAGE_CHANGE,       /* event: the members that change (manager.h) */
    MESSAGE_TICK
};

/* Somebody waits for what a message led to. Whoever is last frees it: he who waits, or, when that
   took him too long, the one who answers. */
struct waiter {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t done_cond;
    bool done, abandoned;
    err result;
    struct err_slot slot;
};

struct message {
    struct message *next;
    enum message_kind kind;
    struct turn_input input; /* its strings are in `storage`, its event is a reference of ours */
    struct waiter *waiter;
    size_t bytes;
    char *storage;
};

/* A session in memory. The mailbox part is guarded by the manager's table lock; the rest belongs to
   whichever executor runs the session. */
struct live {
    unsigned magic;
    struct live *next; /* in its bucket */
    char tenant[ID_MAX], id[ID_MAX];
    struct message *head, **tail;
    size_t mailbox_bytes;
    bool scheduled; /* on the run queue or being run */
    struct live *run_next;
    int64_t wake_at_ms; /* when to post MESSAGE_TICK; -1 = never */

    struct session_manager *m;
    struct arena *config; /* the row's texts */
    struct session_row row;
    json_t *agent;     /* resolved agent config */
    struct turn *turn; /* NULL until loaded */
    struct session_log *log;
    struct projection *projection;
    const char *log_path;
    struct log_place place; /* behind the last line; its projection is the one above */
    char token[65];         /* at the gateway; "" when the host is not open */
    struct buf sealed;      /* the credential that the broker has for it */
    bool workdir_used;      /* it may hold files: the image brings some, or a tool has run */
    char *sandbox_note;     /* to be told to the model at the next resume, or NULL */
    int64_t quiet_since_ms;
    bool ended;  /* deleted, or its log failed: leaves memory after this run */
    bool failed; /* in this run the disk or the database refused: to be woken again soon */
    struct session_usage stored_usage; /* as last written to the row */
    struct spend_hold hold;            /* its part of what the tenant may spend */
    const char *owed_status;           /* the database refused it; NULL = the row is right */
    char *owed_reason;                 /* the stop reason that goes with it, or NULL */
};

struct session_manager {
    struct session_manager_options o;
    char *logs_dir;
    struct harness *harness;
    struct broker_link *broker;
    struct hub *hub;
    struct sandboxes *sandboxes;
    struct spend *spend;
    struct asks *asks;
    pthread_mutex_t table_lock; /* guards all below and the mailbox part of every live */
    pthread_cond_t work, room, timer_cond, sweep_cond;
    struct live *buckets[LIVE_BUCKETS];
    size_t live_count;
    struct live *run_head, **run_tail;
    bool stopping;
    int64_t retry_at_ms; /* monotonic: when to wake unfinished sessions after a failure; 0 = none */
    unsigned tool_threads;
    pthread_t *executors;
    pthread_t timer, sweeper;
    bool started;
};

/* manager.c */
struct message *message_new(enum message_kind kind, const struct turn_input *input);
void message_free(struct message *msg);
/* `e`, with the text in this thread's error slot. The waiter is not to be touched afterwards. */
void waiter_answer(struct waiter *take_w, err e);
/* Puts it into the session's mailbox. The table lock is held. */
void manager_put(struct session_manager *m, struct live *l, struct message *take_msg);
/* The same for whoever does not hold the lock. Loads the session if need be. */
void manager_post(struct session_manager *m, const char *tenant, const char *session,
                  struct message *take_msg);
/* The same for whoever knows only its id; dropped if the session is not in memory. may_block:
   backpressure. */
void manager_post_live(struct session_manager *m, const char *session, struct message *take_msg,
                       bool may_block);
void manager_post_input(struct session_manager *m, const char *session,
                        const struct turn_input *input, bool may_block);

/* live.c: called by an executor that holds the session */
void live_run(struct live *l, struct message *batch);
/* True when it may leave memory now; then live_free. */
bool live_may_unload(const struct live *l, int64_t now_ms);
void live_free(struct live *l);
int64_t live_next_wake(const struct live *l);

/* effects.c */
void effects_perform(struct live *l, const struct turn_effect *e, struct arena *a);
void effects_close_host(struct live *l);
/* `workdir`: records of workdir.h, an LF after each; empty = nothing was found. */
void effects_open_host(struct live *l, struct str workdir);

/* tools.c: each starts a thread that posts its outcome */
void tool_start(struct live *l, const char *call, const char *name, struct str input);
void tool_attach(struct live *l, const char *call, const char *name);
void tool_cancel(struct live *l, const char *call);
void tool_ack(struct live *l, const char *call);
void tool_warm(struct live *l);
/* Posts MESSAGE_OPEN once the working directory has been looked at (R44). */
void tool_read_workdir(struct live *l);
void tool_stop_sandbox(struct live *l);

#endif
