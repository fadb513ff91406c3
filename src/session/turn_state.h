/* The inside of the turn machine, shared by the turn*.c files and nobody else. */
#ifndef SESSION_TURN_STATE_H
#define SESSION_TURN_STATE_H

#include "base/id.h"
#include "session/turn.h"

#define TURN_MAGIC 0x7042b1e5u
#define LINE_ID_MAX 40
#define SPAN_HOLD_MS 1000           /* LOG.md: control holds a span's end at most this long */
#define HOST_LOSSES_MAX 3           /* in a row without a new line: give up the turn */
#define REQUEST_LOST "request_lost" /* the error of a span that nobody ended */

enum host_state {
    HOST_NONE,
    HOST_OPENING,
    HOST_OPEN
};

/* A posted user.message. Waiting until a `processed` line is written (then it was handed to Pi),
   gone when Pi's own user line stands in the log, or when the turn ends without one (projection.h,
   projection_drops_handed). */
struct queued {
    struct queued *next;
    char id[ID_MAX];
    json_t *content;
    struct buf text; /* of content, as Pi writes it: finds the user line that is this message */
    bool steer, processed;
};

/* A tool call of the last assistant line, until its message(toolResult) line.
   DECLARED: in the log. REQUESTED: the host asked for it, held until the span's end is durable.
   RUNNING: with a tool thread. DONE: result known, given to the host or kept for the resume. */
enum call_state {
    CALL_DECLARED,
    CALL_REQUESTED,
    CALL_RUNNING,
    CALL_DONE
};
struct call {
    struct call *next;
    enum call_state state;
    char *id, *name;
    char event_id[ID_MAX];    /* of its agent.tool_use, for deltas */
    struct str input, result; /* heap; result n > 0 when DONE */
    bool shown;               /* a tool_result line stands in the log */
};

/* The model request under way. Its end is written after the assistant line it produced. */
struct request {
    bool open;
    char id[ID_MAX * 2];
    char line_id[LINE_ID_MAX]; /* of its start line: previews take their event ids from it */
    int64_t line_at_ms;
    json_t *end;                          /* arrived but not yet written */
    bool answered;                        /* its assistant (or compaction) line stands … */
    bool good_line, failed_line;          /* … with an answer in it, or without */
    int64_t hold_until_ms;                /* -1 while neither end nor answer arrived */
    int64_t input_tokens, streamed_bytes; /* what is known of it if its end is lost */
    bool text_announced;                  /* event_start sent */
    unsigned thinking_announced;
};

/* R24: what Pi asks the model for, over all attempts (turn_retry.c). */
struct retry {
    unsigned attempts;        /* begun; 0 before the first */
    bool good;                /* the last one was answered: the next request is a new one */
    bool by_pi;               /* Pi has said that it asks again */
    bool resume;              /* Pi has given up: the run is resumed at `at_ms` */
    bool resumed;             /* it was, and has not asked the model yet */
    int64_t at_ms;            /* no attempt before; -1 = no backoff */
    char waiting[ID_MAX * 2]; /* the request that the broker holds until then, "" = none */
};

/* R27 (turn_budget.c). */
struct budget {
    int64_t max_tokens; /* 0 = no limit */
    double max_usd, warn_at;
    bool warned;           /* session.budget_warning was given for it */
    bool ended_turn;       /* the last turn ended for it … */
    bool cut_run;          /* … in the middle of a run, which can go on */
    int64_t cached_tokens; /* of the last request's prompt, at the provider */
    const char *code;      /* a request of this turn was refused: the error's code, or NULL */
    char *text;
};

struct turn {
    unsigned magic;
    struct turn_options o;
    bool has_header;
    bool running; /* session status */
    enum host_state host;
    bool in_run;   /* Pi works on a prompt or resume of ours */
    bool begun;    /* this turn has handed something to Pi: an interrupt leaves the queue alone */
    bool aborting; /* a user.interrupt is being carried out */
    bool resuming; /* the next run continues what a crash cut off */
    bool blocked;  /* the last turn failed: queued messages wait for the next post */
    bool settled;  /* Pi is done, but a span's end is still held */
    bool settled_aborted;
    char *settled_error;
    int64_t running_since_ms, ran_ms; /* this turn's begin; the sum of the turns before it */
    bool overdue;                     /* the abort is the duration limit's, not the user's */
    unsigned host_losses;
    char leaf[LINE_ID_MAX]; /* last Pi entry of the active branch: parent of control lines */
    enum last_role {
        LAST_NONE,
        LAST_USER,
        LAST_ASSISTANT,
        LAST_TOOL_RESULT
    } last_role;
    bool last_failed; /* last assistant line has stopReason error */
    char *last_error;
    char *error_code, *error_text; /* of the last span end, NULL if it had none */
    bool error_unrecoverable;
    struct queued *queue;
    struct call *calls;
    int64_t sandbox_ms; /* how long its start took; -1 = told already */
    bool sandbox_used;  /* by a call of this turn */
    int64_t requests;   /* number of the newest */
    struct request request;
    struct retry retry;
    struct budget budget;
    int64_t asked_tokens; /* about: the input of the newest request */
    struct session_usage usage;
    int64_t spent_at_ms; /* the last span end */
    json_t *known;       /* inbox event ids in the log */
};

/* One step on its way: the machine, where lines and effects go, and the time. */
struct step {
    struct turn *t;
    struct arena *a;
    struct turn_output *out;
    struct turn_effect **tail;
    int64_t now_ms;
};

/* turn_lines.c */
void step_line(struct step *s, struct str line);
void step_header(struct step *s); /* LOG.md: the first line, whoever writes it */
/* A control line; returns its id in the arena. Takes data. */
const char *step_control(struct step *s, const char *custom_type, json_t *take_data);
const char *step_event(struct step *s, json_t *take_event); /* a pi-managed:event line */
struct turn_effect *step_effect(struct step *s, enum turn_effect_kind kind);
void step_frame(struct step *s, const char *type, const char *delta_of, json_t *take_frame);
void step_error(struct step *s, const char *code, const char *message, const char *retry_type);
void step_status(struct step *s, const char *status, const json_t *stop_reason);

/* turn_run.c: what several parts set off or need to know */
bool turn_failed_by(const char *stop_type); /* NULL-safe */
const char *turn_abort_type(const struct turn *t);
void turn_start(struct step *s);
/* The host is open and idle: gives Pi what is next, or ends the turn. */
void turn_begin_run(struct step *s);
void turn_try_settle(struct step *s);
void turn_finish(struct step *s, const char *stop_type);
void turn_fail(struct step *s, const char *code, const char *text);
void turn_interrupt(struct step *s);
void turn_finish_interrupted(struct step *s);
void turn_check_duration(struct step *s);
/* When it will, -1 = never. */
int64_t turn_overdue_at_ms(const struct turn *t);
void turn_mark_processed(struct step *s, struct queued *q, bool withdrawn);
struct queued *turn_first_queued(const struct turn *t, bool processed);
void turn_hand_over(struct step *s, const struct queued *q, enum turn_effect_kind how);

/* turn_calls.c */
void calls_declare(struct turn *t, const json_t *entry, const json_t *message);
struct call *calls_find(struct turn *t, const char *id);
void calls_close(struct turn *t, const char *id); /* its message(toolResult) stands */
void calls_clear(struct turn *t);
void calls_requested(struct step *s, const struct turn_input *in);
void calls_try_start(struct step *s);
void calls_update(struct step *s, const struct turn_input *in);
void calls_result(struct step *s, const struct turn_input *in);
/* A start is told once a call of the turn has come back from the sandbox: one that nobody needed,
   in a turn without calls, is no news and would come at no certain place. */
void calls_tell_sandbox(struct step *s);
/* After a crash of the service a call may run although nothing says so. */
void calls_cancel_all(struct step *s, bool after_crash);
bool calls_all_done(const struct turn *t);
/* Looks for the results of calls that run or may have run; `declared_only`: of those that no host
   has asked for, and now none will. */
void calls_attach(struct step *s, bool declared_only);
/* The toolResult messages of every open call, a line each, for EFFECT_HOST_RESUME. */
struct str calls_resume_lines(struct step *s);
/* The turn ends: stops the calls still open and shows a result for each. */
void calls_give_up(struct step *s);
void call_set_result(struct call *c, struct str result);

/* turn_requests.c */
void request_begin(struct step *s, const struct turn_input *in);
void request_start(struct step *s, const char *id, unsigned attempt); /* span and go */
void request_end(struct step *s, const struct turn_input *in);
void request_answered(struct step *s);
void request_expire(struct step *s, bool at_once);
void request_delta(struct step *s, const json_t *envelope);
void request_discard_previews(struct step *s);
/* Usage and error of a span end, and when it was. */
void request_apply_end(struct turn *t, const json_t *event, int64_t at_ms);
void request_forget(struct request *r);

/* turn_retry.c */
void retry_reset(struct turn *t);
/* session.error for the failed request, in the words of who knows best: the broker, then Pi. */
void retry_tell(struct step *s, json_t *take_status);
void retry_note_start(struct turn *t, int64_t attempt);
void retry_note_line(struct turn *t, bool failed); /* an assistant or compaction line */
void retry_note_end(struct turn *t);               /* a span ended, its error is known */
void retry_note_scheduled(struct turn *t, int64_t attempt, int64_t at_ms);
void retry_admit(struct step *s, const char *request); /* a new request: starts, holds or refuses */
/* The broker holds a request that failed; `ours`: it was the one under way. */
void retry_held(struct step *s, const char *request, bool ours, int64_t retry_after_ms);
void retry_by_pi(struct step *s);
void retry_consider(struct step *s);
bool retry_is_due(const struct turn *t); /* something failed and may be tried again */
/* The run ended with a failure: true if it goes on after a backoff. */
bool retry_resume(struct step *s);
void retry_tick(struct step *s);
void retry_stop(struct step *s); /* the turn is interrupted */
int64_t retry_deadline_ms(const struct turn *t);

/* turn_budget.c */
void budget_set(struct turn *t, const json_t *budget); /* NULL = no limits */
bool budget_is_used_up(struct turn *t);
/* Before an attempt: NULL, with what it may cost reserved; else what the host is told. */
const char *budget_refuses(struct step *s, int64_t input_tokens);
void budget_spent(struct step *s, double usd);               /* a span ended */
void budget_note_end(struct turn *t, const char *stop_type); /* of a turn */
void budget_finish(struct step *s);                          /* the turn ends because of it */
void budget_changed(struct step *s, const json_t *budget);   /* an object or null */

/* turn_load.c: state changes by a line, shared by loading and by lines as they arrive */
void turn_note_entry(struct turn *t, const json_t *entry);
struct queued *turn_queue_push(struct turn *t, const char *id, const json_t *event);
void turn_queue_drop(struct turn *t, struct queued *q);
void turn_queue_drop_handed(struct turn *t);

#endif
