/* sources: src/sandbox/relay.c src/hands/frames.c src/base/arena.c src/base/buf.c src/base/clock.c src/base/err.c src/base/fd.c src/base/json.c src/base/json_scan.c src/base/lock.c src/base/mem.c src/base/str.c */
/* What a client and a sandbox say over a terminal, any bytes: it ends, and each hears only what it
   may. The first byte says where the client's bytes end. */
#include "sandbox/relay.h"

#include "base/buf.h"
#include "base/fd.h"
#include "hands/frames.h"

#include <assert.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Everything that waits in the socket consists of frames of these types. */
static void check(int fd, const enum frame_type *allowed, size_t count)
{
    AUTO_BUF all = {0};
    for (ssize_t got = 1; got > 0; all.n += got > 0 ? (size_t)got : 0) {
        buf_reserve(&all, 65536);
        got = recv(fd, all.p + all.n, 65536, MSG_DONTWAIT);
    }
    struct str rest = buf_str(&all);
    struct frame f;
    size_t used;
    err e = 0;
    while (frame_parse(rest, &f, &used, &e)) {
        bool found = false;
        for (size_t i = 0; i < count; i++)
            found |= f.type == allowed[i];
        assert(found && f.payload.n <= FRAME_CHUNK);
        rest = (struct str){rest.p + used, rest.n - used};
    }
    assert(!e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1 || n > 60000) /* what a socket holds */
        return 0;
    size_t cut = 1 + data[0] * (n - 1) / 255;
    int client[2], hands[2];
    assert(socketpair(AF_UNIX, SOCK_STREAM, 0, client) == 0);
    assert(socketpair(AF_UNIX, SOCK_STREAM, 0, hands) == 0);
    struct str early = {(const char *)data + 1, (cut - 1) / 2};
    assert(fd_write_full(client[0], data + 1 + early.n, cut - 1 - early.n) == 0);
    assert(fd_write_full(hands[0], data + cut, n - cut) == 0);
    shutdown(client[0], SHUT_WR);
    shutdown(hands[0], SHUT_WR);
    const struct relay_options options = {clock_real(), 10000, 10000, 10000};
    relay_run(client[1], early, hands[1], &options);
    close(client[1]);
    close(hands[1]);
    static const enum frame_type to_client[] = {FRAME_STDOUT, FRAME_EXIT, FRAME_ERROR},
                                 to_hands[] = {FRAME_EXEC, FRAME_STDIN, FRAME_RESIZE};
    check(client[0], to_client, 3);
    check(hands[0], to_hands, 3);
    close(client[0]);
    close(hands[0]);
    return 0;
}
