/* Tool calls and sandbox verbs on threads of their own: they block, the session does not. Each
   posts its outcome to the session's mailbox; by then the session may have been unloaded, so
   threads carry copies. */
#include "base/log.h"
#include "base/mem.h"
#include "hands/frames.h"
#include "sandbox/hands.h"
#include "sandbox/ledger.h"
#include "session/live.h"
#include "session/workdir.h"

#include <stdio.h>

#define CANCEL_GRACE_MS 1000 /* R22 */

struct job {
    struct session_manager *m;
    char tenant[ID_MAX], session[ID_MAX];
    char *call, *name, *environment;
    struct buf input;
    uint64_t offset;
    unsigned uses; /* of the sandbox, by this job */
};

static struct job *job_new(struct live *l, const char *call, const char *name, struct str input)
{
    struct job *j = mem_alloc(sizeof *j);
    j->m = l->m;
    snprintf(j->tenant, sizeof j->tenant, "%s", l->tenant);
    snprintf(j->session, sizeof j->session, "%s", l->id);
    j->call = mem_strdup(call ? call : "");
    j->name = mem_strdup(name ? name : "");
    j->environment = mem_strdup(l->row.environment_json);
    buf_add_str(&j->input, input);
    return j;
}

static err start_sandbox(struct job *j, char out_socket[SOCKET_PATH_MAX], bool *out_fresh)
{
    int64_t began_ms = clock_monotonic_ms(j->m->o.clock);
    TRY(sandboxes_start(j->m->sandboxes, j->tenant, j->session, j->environment, out_socket,
                        out_fresh));
    j->uses++;
    if (*out_fresh)
        manager_post_input(
            j->m, j->session,
            &(struct turn_input){.kind = TURN_SANDBOX_STARTED,
                                 .number = clock_monotonic_ms(j->m->o.clock) - began_ms},
            true);
    return 0;
}

static void job_free(struct job *j)
{
    for (; j->uses > 0; j->uses--)
        sandboxes_release(j->m->sandboxes, j->session);
    AUTO_LOCK(&j->m->table_lock);
    j->m->tool_threads--;
    mem_free(j->call);
    mem_free(j->name);
    mem_free(j->environment);
    buf_done(&j->input);
    mem_free(j);
}

static void post_result(struct job *j, struct str result)
{
    manager_post_input(
        j->m, j->session,
        &(struct turn_input){.kind = TURN_TOOL_RESULT, .id = j->call, .bytes = result}, true);
}

static void post_error_result(struct job *j, const char *text, bool interrupted)
{
    AUTO_JSON result = json_pack("{s:[{s:s, s:o}], s:b}", "content", "type", "text", "text",
                                 json_str(str_of(text)), "isError", 1);
    if (interrupted)
        json_object_set_new(result, "interrupted", json_true());
    AUTO_BUF out = {0};
    json_write(result, &out);
    post_result(j, buf_str(&out));
}

/* Starts a thread for the job unless too many run: a tool call then gets an error the model can act
 * on. */
static void run_job(struct job *j, const char *name, void *(*fn)(void *), bool has_result)
{
    pthread_mutex_lock(&j->m->table_lock);
    bool full = j->m->tool_threads++ >= TOOL_THREADS_MAX;
    pthread_mutex_unlock(&j->m->table_lock);
    if (!full) {
        thread_start_detached(name, fn, j);
        return;
    }
    log_warn("%d sandbox operations run already: %s refused", TOOL_THREADS_MAX, name);
    if (has_result)
        post_error_result(j, "The service is running too many tool calls. Try again later.", false);
    job_free(j);
}

static void sandbox_failed(struct job *j)
{
    char text[ERR_TEXT_MAX], code[ERR_CODE_MAX];
    snprintf(text, sizeof text, "The sandbox cannot be started: %.400s", err_text());
    snprintf(code, sizeof code, "%s",
             strcmp(err_code(), LEDGER_NO_ROOM) == 0 ? LEDGER_NO_ROOM : "sandbox_unavailable");
    log_error("%s", text);
    manager_post_input(
        j->m, j->session,
        &(struct turn_input){.kind = TURN_SANDBOX_FAILED, .name = code, .text = text}, true);
    post_error_result(j, text, false);
}

static void on_update(void *arg, uint64_t offset, struct str bytes)
{
    struct job *j = arg;
    manager_post_input(
        j->m, j->session,
        &(struct turn_input){
            .kind = TURN_TOOL_UPDATE, .id = j->call, .number = (int64_t)offset, .bytes = bytes},
        true);
}

static struct hands_call call_of(struct job *j)
{
    return (struct hands_call){.key = j->call,
                               .tool = j->name,
                               .input = buf_str(&j->input),
                               .cwd = SANDBOX_WORKDIR,
                               .on_update = on_update,
                               .arg = j};
}

/* Runs the call; a sandbox that turns out to be gone is started again once, before the tool had a
 * chance to run. */
static err call_in_sandbox(struct job *j, struct buf *result, bool *out_started)
{
    char socket[SOCKET_PATH_MAX];
    bool fresh = false;
    *out_started = false;
    for (int attempt = 0;; attempt++) {
        TRY(start_sandbox(j, socket, &fresh));
        *out_started = true;
        struct hands_call call = call_of(j);
        err e = hands_call(socket, &call, result);
        if (!e)
            return 0;
        sandboxes_forget(j->m->sandboxes, j->session);
        if (e != E_UNAVAILABLE || attempt > 0)
            return e;
        *out_started = false;
    }
}

static void *call_thread(void *arg)
{
    struct job *j = arg;
    log_bind(NULL, j->session);
    AUTO_BUF result = {0};
    bool started = false;
    if (!call_in_sandbox(j, &result, &started))
        post_result(j, buf_str(&result));
    else if (!started)
        sandbox_failed(j);
    else
        post_error_result(j,
                          "Interrupted: the sandbox died while this call was running; its effects "
                          "are unknown and processes did not survive.",
                          true);
    job_free(j);
    return NULL;
}

void tool_start(struct live *l, const char *call, const char *name, struct str input)
{
    run_job(job_new(l, call, name, input), "tool", call_thread, true);
}

/* R26: the true result if the sandbox still has it, else an honest guess. */
static void *attach_thread(void *arg)
{
    struct job *j = arg;
    log_bind(NULL, j->session);
    AUTO_BUF result = {0};
    char socket[SOCKET_PATH_MAX];
    bool fresh = false;
    struct hands_call call = call_of(j);
    if (start_sandbox(j, socket, &fresh))
        sandbox_failed(j);
    else if (!hands_attach(socket, &call, &result))
        post_result(j, buf_str(&result));
    else
        post_error_result(
            j,
            "Interrupted: the service restarted while this call was open; its effects "
            "are unknown.",
            true);
    job_free(j);
    return NULL;
}

void tool_attach(struct live *l, const char *call, const char *name)
{
    run_job(job_new(l, call, name, (struct str){0}), "tool-attach", attach_thread, true);
}

static void *cancel_thread(void *arg)
{
    struct job *j = arg;
    char socket[SOCKET_PATH_MAX];
    bool fresh = false;
    if (start_sandbox(j, socket, &fresh) || hands_cancel(socket, j->call, CANCEL_GRACE_MS))
        log_warn("cannot cancel the call %s: %s", j->call, err_text());
    job_free(j);
    return NULL;
}

void tool_cancel(struct live *l, const char *call)
{
    run_job(job_new(l, call, NULL, (struct str){0}), "tool-cancel", cancel_thread, false);
}

static void *ack_thread(void *arg)
{
    struct job *j = arg;
    char socket[SOCKET_PATH_MAX];
    bool fresh = false;
    /* Not heard is not lost: the sandbox forgets its oldest results itself. */
    if (start_sandbox(j, socket, &fresh) || hands_ack(socket, j->call))
        log_debug("cannot acknowledge the call %s: %s", j->call, err_text());
    job_free(j);
    return NULL;
}

void tool_ack(struct live *l, const char *call)
{
    if (sandboxes_known(l->m->sandboxes, l->id))
        run_job(job_new(l, call, NULL, (struct str){0}), "tool-ack", ack_thread, false);
}

static void *warm_thread(void *arg)
{
    struct job *j = arg;
    log_bind(NULL, j->session);
    char socket[SOCKET_PATH_MAX];
    bool fresh = false;
    if (start_sandbox(j, socket, &fresh))
        log_warn("the sandbox does not start: %s", err_text()); /* the first tool call reports it */
    job_free(j);
    return NULL;
}

void tool_warm(struct live *l)
{
    if (!sandboxes_known(l->m->sandboxes, l->id))
        run_job(job_new(l, NULL, NULL, (struct str){0}), "sandbox-warm", warm_thread, false);
}

/* A working directory that cannot be looked at does not keep the session from going on: what
   ails the sandbox is reported by the first call that needs it. */
static void *workdir_thread(void *arg)
{
    struct job *j = arg;
    log_bind(NULL, j->session);
    char socket[SOCKET_PATH_MAX];
    bool fresh = false;
    AUTO_BUF found = {0};
    size_t lines = 0;
    if (start_sandbox(j, socket, &fresh) || workdir_read(socket, &found, &lines)) {
        log_warn("the working directory's context files are not read: %s", err_text());
        buf_clear(&found);
    }
    struct turn_input in = {.bytes = buf_str(&found)};
    manager_post_live(j->m, j->session, message_new(MESSAGE_OPEN, &in), true);
    job_free(j);
    return NULL;
}

void tool_read_workdir(struct live *l)
{
    run_job(job_new(l, NULL, NULL, (struct str){0}), "workdir", workdir_thread, false);
}

static void *stop_thread(void *arg)
{
    struct job *j = arg;
    log_bind(NULL, j->session);
    if (sandboxes_stop(j->m->sandboxes, j->tenant, j->session))
        log_warn("cannot stop the idle sandbox: %s", err_text());
    job_free(j);
    return NULL;
}

void tool_stop_sandbox(struct live *l)
{
    run_job(job_new(l, NULL, NULL, (struct str){0}), "sandbox-stop", stop_thread, false);
}
