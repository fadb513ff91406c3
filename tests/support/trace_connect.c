/* Runs a program and notes who in it, or in any process it starts, connects to an internet address:

     trace_connect FILE PROGRAM ARGUMENTS…

   FILE gets a line of JSON for each connect(2), or sendto(2) with an address, of family AF_INET or
   AF_INET6: {"pid", "exe", "command", "net", "address", "port", "callers": [{"file", "offset"}]}:
   what on the calling thread's stack looks like return addresses, innermost first, as offsets into
   files. Everything is let through. The program keeps this process, so signals and exit status are
   its own; the tracer is a grandchild that ends with the last traced process. Needs root. */
#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_BYTES (64u << 10)
#define CALLERS_MAX 24
#define MAPS_MAX (4u << 20)

static void die(const char *what)
{
    perror(what);
    _exit(127);
}

static bool read_memory(pid_t tid, uint64_t at, void *out, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", tid);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && pread(fd, out, n, (off_t)at) == (ssize_t)n;
}

static void link_text(pid_t tid, const char *name, char out[PATH_MAX])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", tid, name);
    ssize_t n = readlink(path, out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = 0;
}

/* The executable mapping of a file that holds the address: its name and the offset in the file. */
static bool find_mapping(char *maps, uint64_t address, const char **out_file, uint64_t *out_offset)
{
    for (char *line = maps; *line; line = strchr(line, '\n') + 1) {
        unsigned long from, to, offset;
        char mode[5];
        int at = 0;
        if (sscanf(line, "%lx-%lx %4s %lx %*s %*s %n", &from, &to, mode, &offset, &at) < 4)
            continue;
        if (address < from || address >= to)
            continue;
        if (mode[2] != 'x' || at == 0 || line[at] != '/')
            return false;
        *out_file = line + at;
        *out_offset = address - from + offset;
        return true;
    }
    return false;
}

static json_t *callers_of(pid_t tid)
{
    json_t *callers = json_array();
    AUTO_BUF maps = {0}, state = {0};
    char path[64];
    unsigned long sp = 0;
    static uint64_t stack[STACK_BYTES / sizeof(uint64_t)];
    snprintf(path, sizeof path, "/proc/%d/maps", tid);
    if (fd_read_file(path, MAPS_MAX, &maps) != 0)
        return callers;
    snprintf(path, sizeof path, "/proc/%d/syscall", tid);
    if (fd_read_file(path, 4096, &state) != 0 ||
        sscanf(state.p, "%*d %*x %*x %*x %*x %*x %*x %lx", &sp) != 1)
        return callers;
    size_t words = 0;
    while (words < STACK_BYTES / sizeof *stack &&
           read_memory(tid, sp + words * sizeof *stack, &stack[words], sizeof *stack))
        words++;
    for (size_t i = 0; i < words && json_array_size(callers) < CALLERS_MAX; i++) {
        const char *file;
        uint64_t offset;
        if (!find_mapping(maps.p, stack[i], &file, &offset))
            continue;
        json_array_append_new(callers, json_pack("{s:s%, s:I}", "file", file, strcspn(file, "\n"),
                                                 "offset", (json_int_t)offset));
    }
    return callers;
}

static bool internet_address(pid_t tid, uint64_t at, uint64_t n, char text[INET6_ADDRSTRLEN],
                             int *out_port)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {0};
    if (n > sizeof a)
        n = sizeof a;
    if (n < sizeof(sa_family_t) || !read_memory(tid, at, &a, n))
        return false;
    if (a.sa.sa_family == AF_INET)
        inet_ntop(AF_INET, &a.v4.sin_addr, text, INET6_ADDRSTRLEN);
    else if (a.sa.sa_family == AF_INET6)
        inet_ntop(AF_INET6, &a.v6.sin6_addr, text, INET6_ADDRSTRLEN);
    else
        return false;
    *out_port = ntohs(a.sa.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    return true;
}

static bool is_connected(pid_t tid, int fd)
{
    char path[64];
    AUTO_BUF status = {0};
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    const char *group =
        fd_read_file(path, 65536, &status) == 0 ? strstr(status.p, "\nTgid:") : NULL;
    AUTO_FD process = group ? (int)syscall(SYS_pidfd_open, atoi(group + 6), 0) : -1;
    AUTO_FD copy = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    struct sockaddr_storage peer;
    socklen_t n = sizeof peer;
    return copy >= 0 && getpeername(copy, (struct sockaddr *)&peer, &n) == 0;
}

static void note(int output, const struct seccomp_notif *call)
{
    pid_t tid = (pid_t)call->pid;
    bool is_connect = call->data.nr == SCMP_SYS(connect);
    char address[INET6_ADDRSTRLEN], exe[PATH_MAX], net[PATH_MAX], path[64];
    int port;
    if (!internet_address(tid, call->data.args[is_connect ? 1 : 4],
                          call->data.args[is_connect ? 2 : 5], address, &port))
        return;
    AUTO_BUF command = {0}, line = {0};
    snprintf(path, sizeof path, "/proc/%d/cmdline", tid);
    fd_read_file(path, 65536, &command);
    for (size_t i = 0; i < command.n; i++)
        if (command.p[i] == 0)
            command.p[i] = ' ';
    link_text(tid, "exe", exe);
    link_text(tid, "ns/net", net);
    AUTO_JSON j =
        json_pack("{s:i, s:s, s:s, s:s, s:i, s:b, s:o}", "pid", tid, "exe", exe, "net", net,
                  "address", address, "port", port, "connected",
                  (int)is_connected(tid, (int)call->data.args[0]), "callers", callers_of(tid));
    json_set_str(j, "command", buf_str(&command));
    json_write(j, &line);
    buf_add_char(&line, '\n');
    fd_write_full(output, line.p, line.n);
}

static void trace(int listener, int output)
{
    struct seccomp_notif *call = NULL;
    struct seccomp_notif_resp *answer = NULL;
    if (seccomp_notify_alloc(&call, &answer) != 0)
        die("seccomp_notify_alloc");
    for (;;) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            die("poll");
        if (p.revents & POLLHUP) /* nobody is left to trace */
            _exit(0);
        memset(call, 0, sizeof *call);
        if (!(p.revents & POLLIN) || seccomp_notify_receive(listener, call) != 0)
            continue;
        note(output, call);
        memset(answer, 0, sizeof *answer);
        answer->id = call->id;
        answer->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        seccomp_notify_respond(listener, answer); /* fails when the caller died meanwhile */
    }
}

/* The tracer gets the listener over a socket: it must not hold the filter itself. */
static void start_tracer(int output, int socket)
{
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child > 0) {
        waitpid(child, NULL, 0);
        return;
    }
    if (fork() != 0)
        _exit(0);
    char byte;
    size_t n;
    int fds[FD_PASS_MAX];
    setsid();
    if (fd_recv(socket, &byte, 1, &n, fds) != 0 || fds[0] < 0)
        _exit(1);
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
    fd_close(&socket);
    trace(fds[0], output);
}

static int install_filter(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL || seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 0) != 0 ||
        seccomp_rule_add(filter, SCMP_ACT_NOTIFY, SCMP_SYS(connect), 0) != 0 ||
        seccomp_rule_add(filter, SCMP_ACT_NOTIFY, SCMP_SYS(sendto), 1, SCMP_A4(SCMP_CMP_NE, 0)) !=
            0 ||
        seccomp_load(filter) != 0)
        die("seccomp");
    return seccomp_notify_fd(filter);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: trace_connect FILE PROGRAM ARGUMENTS…\n");
        return 2;
    }
    int output = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), pair[2];
    if (output < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        die(argv[1]);
    start_tracer(output, pair[1]);
    fd_close(&pair[1]);
    int listener = install_filter();
    if (fd_send(pair[0], "x", 1, &listener, 1) != 0)
        die("the tracer is gone");
    fd_close(&pair[0]);
    fd_close(&listener);
    execv(argv[2], argv + 2);
    die(argv[2]);
}
