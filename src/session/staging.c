#include "session/staging.h"

#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"
#include "objects/objects.h"
#include "sandbox/exec.h"

#include <fcntl.h>
#include <unistd.h>

#define MARK "/mnt/session/.resources-staged"
#define CHUNK (64u << 10)
#define TIMEOUT_MS (10 * 60 * 1000)

/* `sh -c script sh argument` inside the sandbox; *out_status as a shell reports it. */
static err run(const char *socket, const char *script, const char *argument, int in,
               int *out_status)
{
    char *const argv[] = {"sh", "-c", (char *)script, "sh", (char *)argument};
    AUTO_BUF out = {0};
    AUTO_BUF errs = {0};
    struct exec_request r = {.argv = argv,
                             .argc = sizeof argv / sizeof *argv,
                             .cwd = SANDBOX_WORKDIR,
                             .in = in,
                             .out = -1,
                             .err_fd = -1,
                             .signals = -1,
                             .keep_out = &out,
                             .keep_errs = &errs,
                             .keep_max = 512,
                             .timeout_ms = TIMEOUT_MS};
    struct exec_ended ended = {0};
    TRY(exec_run(socket, &r, &ended));
    *out_status = exec_status(&ended);
    if (*out_status != 0)
        (void)fail(E_UNAVAILABLE, "%.*s", STR_ARG(buf_str(&errs)));
    return 0;
}

struct feed {
    struct object_get *get; /* the feeder's */
    int to;
    bool failed; /* the store did not give all of it */
};

/* Writes the object into the pipe; a reader that goes away early has its own reason to tell. */
static void *feed_thread(void *arg)
{
    struct feed *f = arg;
    char chunk[CHUNK];
    size_t n = 1;
    while (n > 0) {
        f->failed = objects_get_read(f->get, chunk, sizeof chunk, &n) != 0;
        if (f->failed || fd_write_full(f->to, chunk, n) != 0)
            break;
    }
    objects_get_close(f->get);
    fd_close(&f->to);
    return NULL;
}

static err stage_file(struct objects *objects, const char *socket, const json_t *resource)
{
    static const char script[] = "mkdir -p -- \"$(dirname -- \"$1\")\" && cat >\"$1\"";
    const char *key = json_get_c(resource, "key"), *path = json_get_c(resource, "path");
    const char *id = json_get_c(resource, "fileId");
    struct feed f = {.to = -1};
    uint64_t size = 0;
    err e = objects_get(objects, key, 0, UINT64_MAX, &f.get, &size);
    if (e == E_NOT_FOUND)
        return fail(E_NOT_FOUND, "the file %s, a resource of the session, was deleted", id);
    TRY(e);
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        objects_get_close(f.get);
        return fail_errno("make a pipe");
    }
    AUTO_FD in = ends[0];
    f.to = ends[1];
    pthread_t feeder = thread_start("staging", feed_thread, &f);
    e = run(socket, script, path, in, &status);
    fd_close(&in); /* so that the feeder does not wait for a reader that is gone */
    pthread_join(feeder, NULL);
    TRY(e);
    if (f.failed)
        return fail(E_IO, "the file %s cannot be read from the object store", id);
    if (status == 0)
        return 0;
    struct err_slot why;
    err_save(&why);
    return fail(E_UNAVAILABLE, "the file %s cannot be written to %s: %.200s", id, path, why.text);
}

err staging_run(struct objects *objects, const char *socket, const char *resources_json)
{
    json_t *parsed = NULL;
    TRY(json_read(str_of(resources_json), &parsed));
    AUTO_JSON resources = parsed;
    int status = 0;
    TRY(run(socket, "test -e \"$1\"", MARK, -1, &status));
    if (status == 0)
        return 0;
    size_t i;
    json_t *resource;
    json_array_foreach(resources, i, resource) TRY(stage_file(objects, socket, resource));
    TRY(run(socket, "mkdir -p \"${1%/*}\" && : >\"$1\"", MARK, -1, &status));
    return status
               ? fail(E_UNAVAILABLE, "the resources cannot be marked as staged: %.200s", err_text())
               : 0;
}
