/* For the tests of pi-hands: a program of its own in a temporary folder, driven through
   sandbox/hands.h. One a test file; each test uses keys and files of its own. */
#ifndef HANDS_SUPPORT_H
#define HANDS_SUPPORT_H

#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "hands/frames.h"
#include "sandbox/hands.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char hands_folder[64], hands_socket[96];
static pid_t hands_pid;
static char hands_image[96]; /* set before hands_setup: a folder that stands for the image */

static inline int listen_at(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 64), 0);
    return fd;
}

static inline void hands_make_folder(void)
{
    snprintf(hands_folder, sizeof hands_folder, "/tmp/pm-hands-XXXXXX");
    assert_non_null(mkdtemp(hands_folder));
    snprintf(hands_socket, sizeof hands_socket, "%s/s", hands_folder);
}

/* In the child. */
_Noreturn static inline void hands_exec(int listener)
{
    char number[16], home[80], rg[80], image[16];
    snprintf(rg, sizeof rg, "%s/rg", hands_folder); /* a test may put a program there */
    snprintf(number, sizeof number, "%d", listener);
    snprintf(home, sizeof home, "HOME=%s", hands_folder);
    char *env[] = {home, "PI_SESSION_ID=secret", NULL};
    int folder = hands_image[0] ? open(hands_image, O_RDONLY | O_DIRECTORY) : -1;
    snprintf(image, sizeof image, "%d", folder);
    char *with_image[] = {"pi-hands", number, "--rg", rg, "--image", image, NULL};
    if (folder < 0)
        with_image[4] = NULL;
    execve("build/pi-hands", with_image, env);
    _exit(127);
}

static inline int hands_setup(void **state)
{
    (void)state;
    hands_make_folder();
    int listener = listen_at(hands_socket);
    hands_pid = fork();
    assert_true(hands_pid >= 0);
    if (hands_pid == 0)
        hands_exec(listener);
    close(listener);
    assert_int_equal(hands_hello(hands_socket, 10000), 0);
    return 0;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static inline void hands_remove_folder(void)
{
    nftw(hands_folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int hands_teardown(void **state)
{
    (void)state;
    int status;
    kill(hands_pid, SIGTERM);
    waitpid(hands_pid, &status, 0);
    hands_remove_folder();
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static inline const char *path_in(const char *name)
{
    static char paths[8][160];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", hands_folder, name);
    return path;
}

static inline void put_file(const char *name, struct str content)
{
    AUTO_FD fd = open(path_in(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_full(fd, content.p, content.n), 0);
}

static inline void get_file(const char *name, struct buf *out)
{
    assert_int_equal(fd_read_file(path_in(name), 256u << 20, out), 0);
}

/* The parts of a RESULT; the JSON keeps them alive. */
struct result {
    json_t *json;
    struct str text;
    bool is_error, interrupted;
};

static inline void result_done(struct result *r)
{
    json_decref(r->json);
}
#define AUTO_RESULT __attribute__((cleanup(result_done))) struct result

static inline struct result result_of(struct str json)
{
    struct result r = {0};
    assert_int_equal(json_read(json, &r.json), 0);
    json_t *first = json_array_get(json_object_get(r.json, "content"), 0);
    assert_string_equal(json_get_c(first, "type"), "text");
    r.text = json_get_str(first, "text");
    r.is_error = json_get_bool(r.json, "isError", false);
    r.interrupted = json_get_bool(r.json, "interrupted", false);
    return r;
}

static inline struct result call_in(const char *cwd, const char *key, const char *tool,
                                    const char *input)
{
    struct hands_call call = {
        .key = key, .tool = tool, .input = str_of(input), .cwd = cwd, .timeout_ms = 60000};
    AUTO_BUF out = {0};
    err e = hands_call(hands_socket, &call, &out);
    if (e)
        fail_msg("call %s: %s", key, err_text());
    assert_int_equal(hands_ack(hands_socket, key), 0);
    return result_of(buf_str(&out));
}

static inline struct result call_tool(const char *tool, const char *input)
{
    static unsigned next;
    char key[32];
    snprintf(key, sizeof key, "call_%u", next++);
    return call_in(hands_folder, key, tool, input);
}

/* {"command": …, "timeout": …} for a shell command as plain text. */
static inline struct result bash_timeout(const char *command, double timeout)
{
    AUTO_JSON input = json_object();
    json_set_str(input, "command", str_of(command));
    if (timeout > 0)
        json_object_set_new(input, "timeout", json_real(timeout));
    AUTO_BUF text = {0};
    json_write(input, &text);
    return call_tool("bash", text.p);
}

static inline struct result bash(const char *command)
{
    return bash_timeout(command, 0);
}

static inline void assert_text(const struct result *r, const char *text)
{
    if (!str_is(r->text, text))
        fail_msg("got  %.*s\nwant %s", STR_ARG(r->text), text);
}

static inline void assert_has(struct str text, const char *part)
{
    if (text.n == 0 || !memmem(text.p, text.n, part, strlen(part)))
        fail_msg("no \"%s\" in \"%.*s\"", part, STR_ARG(text));
}

/* Raw conversations. */
static inline int open_conversation(enum frame_type type, const char *payload)
{
    int fd = -1;
    assert_int_equal(hands_connect(hands_socket, &fd), 0);
    assert_int_equal(frame_write(fd, type, str_of(payload)), 0);
    return fd;
}

static inline enum frame_type next_frame(int fd, struct buf *out)
{
    enum frame_type type;
    if (frame_read(fd, &type, out) != 0)
        fail_msg("no frame: %s", err_text());
    return type;
}

#endif
