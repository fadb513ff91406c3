/* Setting up the database, for commands that need no service: control's code once, as control. */
#include "parent/parent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "parent/child.h"
#include "parent/notes.h"

static err wait_for_setup(struct peer *peer, pid_t pid, struct parent_message *out_reply)
{
    struct pollfd fd = {.fd = peer->fd, .events = POLLIN};
    int n;
    do
        n = poll(&fd, 1, CHILD_HELLO_MS);
    while (n < 0 && errno == EINTR);
    err e = n > 0 ? peer_receive(peer, out_reply)
                  : fail(E_TIMEOUT, "setting up the database took more than %d s",
                         CHILD_HELLO_MS / 1000);
    if (e == E_TIMEOUT)
        kill(pid, SIGKILL);
    struct err_slot slot;
    err_save(&slot);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (e == E_CLOSED)
        return fail(E_INTERNAL, "setting up the database failed; the reason is above");
    if (e)
        return err_restore(&slot);
    return out_reply->status ? fail(out_reply->status, "%.*s", PARENT_TEXT_MAX - 1, out_reply->text)
                             : 0;
}

err parent_setup(const struct parent_options *options, struct parent_message *out_reply)
{
    struct child setup = {.name = "setup", .has_data = true, .peer = {.fd = -1}};
    char short_dir[SOCKET_PATH_MAX];
    TRY(data_short_path(options->data, short_dir, sizeof short_dir));
    TRY(child_spawn(&setup, options));
    child_sent(&setup, note_config(&setup.peer, options, short_dir, true));
    err e = wait_for_setup(&setup.peer, setup.pid, out_reply);
    peer_close(&setup.peer);
    return e;
}
