/* pi-hands: runs inside a sandbox as its pid 1 and does there what control asks for, over the hands
   protocol (frames.h). Usage: pi-hands LISTEN_FD [--image FD] [--rg PATH] | pi-hands --version;
   --image is an open folder with the image's files (for COPY_OUT), --rg is for tests outside a
   sandbox, where there is no SANDBOX_RG. Idle it is this one thread in poll. */
#include "base/fd.h"
#include "base/str.h"
#include "hands/conn.h"
#include "hands/copy_out.h"
#include "hands/frames.h"
#include "hands/process.h"
#include "hands/threads.h"
#include "hands/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ACCEPT_RETRY_MS 100
#define END_CHECK_MS 20

static void *serve(void *arg)
{
    conn_serve((int)(intptr_t)arg);
    malloc_trim(0); /* idle it stays small, whatever the last call needed */
    return NULL;
}

static void accept_one(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
        poll(NULL, 0, ACCEPT_RETRY_MS); /* the connection stays in the queue: do not spin on it */
    if (fd >= 0 && !thread_try("conn", serve, (void *)(intptr_t)fd))
        conn_refuse(fd);
}

static int watch_signals(void)
{
    sigset_t all, watched;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL); /* for every thread; children get an empty mask back */
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTERM);
    return signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* True when a SIGTERM arrived that counts: pid 1 takes it from outside the sandbox only, whose
   sender has no pid in here. The agent's own `kill 1` has no effect, as with any init. */
static bool read_signals(int fd)
{
    bool term = false;
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof info) == sizeof info)
        term |= info.ssi_signo == SIGTERM && (getpid() != 1 || info.ssi_pid == 0);
    return term;
}

/* As pid 1: everybody gets TERM, and the program ends once they are gone (whoever sent it brings
   KILL later). Else, in a test: the groups it owns go with it. */
static void end_all(void)
{
    if (getpid() == 1)
        kill(-1, SIGTERM);
    else
        process_kill_all();
}

_Noreturn static void run(int listener)
{
    int signals = watch_signals();
    if (signals < 0) {
        fprintf(stderr, "pi-hands: signalfd: %s\n", strerror(errno));
        exit(1);
    }
    bool ending = false;
    for (;;) {
        struct pollfd fds[2] = {{.fd = listener, .events = POLLIN},
                                {.fd = signals, .events = POLLIN}};
        /* At the end another thread may reap the last child: look again without a signal. */
        if (poll(fds, 2, ending ? END_CHECK_MS : -1) < 0)
            continue;
        if (fds[1].revents && read_signals(signals)) {
            ending = true;
            end_all();
        }
        if (fds[1].revents || ending) {
            bool children = process_reap_orphans();
            if (ending && (!children || getpid() != 1))
                exit(0);
        }
        if (fds[0].revents)
            accept_one(listener);
    }
}

static void close_between(int after, int before)
{
    if (before - after > 1)
        close_range((unsigned)after + 1, (unsigned)before - 1, 0);
}

/* Whatever else the launcher left open must not reach the agent's processes. */
static void close_others(int listener)
{
    int image = copy_out_image_fd < 0 ? listener : copy_out_image_fd;
    int low = listener < image ? listener : image, high = listener < image ? image : listener;
    fcntl(low, F_SETFD, FD_CLOEXEC);
    fcntl(high, F_SETFD, FD_CLOEXEC);
    close_between(2, low);
    close_between(low, high);
    close_range((unsigned)high + 1, ~0u, 0);
}

/* Descriptors 0 to 2 exist, so that no pipe of ours ever gets such a number. */
static void fill_standard_fds(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
}

static bool is_listener(int fd)
{
    int listening = 0;
    socklen_t n = sizeof listening;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) == 0 && listening;
}

static bool is_folder(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool descriptor_of(const char *word, int *out)
{
    uint64_t n;
    if (!str_to_u64(str_of(word), &n) || n < 3 || n > 1 << 20)
        return false;
    *out = (int)n;
    return true;
}

/* What stands behind LISTEN_FD. */
static bool take_options(int argc, char **argv)
{
    for (int i = 2; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--rg") == 0)
            tool_rg_path = argv[i + 1];
        else if (i + 1 == argc || strcmp(argv[i], "--image") != 0 ||
                 !descriptor_of(argv[i + 1], &copy_out_image_fd) || !is_folder(copy_out_image_fd))
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    int fd;
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("pi-hands protocol %d\n", HANDS_VERSION);
        return 0;
    }
    if (argc < 2 || !descriptor_of(argv[1], &fd) || !take_options(argc, argv)) {
        fprintf(stderr,
                "usage: pi-hands LISTEN_FD [--image FD] [--rg PATH] | pi-hands --version\n");
        return 2;
    }
    if (!is_listener(fd)) {
        fprintf(stderr, "pi-hands: descriptor %s is not a listening socket\n", argv[1]);
        return 1;
    }
    fill_standard_fds();
    close_others(fd);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 256 * 1024);
    umask(022);
    if (getpid() == 1)
        /* The agent's processes have our user and capabilities: they must not get at our socket and
           memory by ptrace, /proc/1/mem or the like. What we execute is as open as ever. */
        prctl(PR_SET_DUMPABLE, 0);
    else
        prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that orphans end up here as they do at pid 1 */
    conn_init();
    run(fd);
}
