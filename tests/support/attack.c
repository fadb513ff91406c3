/* Test equipment: the attacker's kit. A static program that tries to get out of where it runs, one
   attempt after the other, each in a process of its own, and says what came of it, one JSON line
   each: {"name", "succeeded", "detail"}. tests/e2e/escape.test.mjs runs it inside a sandbox, and on
   the host, where every attempt succeeds. So each of them is harmless to the host: what it writes
   is what was there, what it makes it removes, what it exhausts is bounded.

     attack NAME… KEY=VALUE…   runs these attempts ("all": every one that exhausts nothing)
     attack handle PATH        prints the file handle of PATH, for the attempt "file_handle"

   KEYs: pid (of a process outside), token and file (a file outside holds the token), disk
   (MAJOR:MINOR of the host's disk), handle, unix and abstract (sockets outside), tcp and udp (ports
   of the host's loopback), hands (pid of pi-hands), agent (its socket's path outside), uid
   (somebody else). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTEMPT_SECONDS 10
#define TEXT_MAX 4096
#define FORKS 200
#define HOG_MIB 192
#define SHM_MIB 80
#define DISK_MIB 96
#define FILES 20000

static char **arguments;
static char self[TEXT_MAX];

static const char *value_of(const char *key)
{
    size_t n = strlen(key);
    for (char **a = arguments; *a; a++)
        if (strncmp(*a, key, n) == 0 && (*a)[n] == '=')
            return *a + n + 1;
    fprintf(stderr, "attack: %s= is missing\n", key);
    _exit(2);
}

static int number_of(const char *key)
{
    return (int)strtol(value_of(key), NULL, 10);
}

/* An attempt returns NULL when it succeeded, else what stopped it. */
static const char *outcome(bool succeeded)
{
    return succeeded ? NULL : strerror(errno);
}

static const char *path_of(const char *key, const char *below)
{
    static char path[TEXT_MAX];
    snprintf(path, sizeof path, "/proc/%d/%s", number_of(key), below);
    return path;
}

/* ---- mounts and namespaces ---- */

static const char *mount_tmpfs(void)
{
    if (mount("attack", "/mnt", "tmpfs", 0, NULL) < 0)
        return strerror(errno);
    return outcome(umount("/mnt") == 0);
}

static const char *mount_new_api(void)
{
    return outcome(syscall(SYS_fsopen, "tmpfs", 0) >= 0);
}

/* A copy of a mount could be made writable. */
static const char *mount_clone(void)
{
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/proc/sys", 1 /* OPEN_TREE_CLONE */);
    return outcome(tree >= 0);
}

static const char *unshare_user(void)
{
    return outcome(unshare(CLONE_NEWUSER) == 0);
}

static const char *unshare_mount(void)
{
    return outcome(unshare(CLONE_NEWNS) == 0);
}

static const char *clone_user(void)
{
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return outcome(pid > 0);
}

/* Its flags lie in memory, where a filter of system calls cannot look. */
static const char *clone3_user(void)
{
    struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        _exit(0);
    return outcome(pid > 0);
}

/* unshare(CLONE_NEWNS) by the other system call tables of the processor. */
static const char *other_table(bool x32)
{
#if defined(__x86_64__)
    long r = x32 ? syscall(0x40000000 | SYS_unshare, CLONE_NEWNS) : 310;
    if (!x32) {
        __asm__ volatile("int $0x80"
                         : "+a"(r)
                         : "b"((long)CLONE_NEWNS)
                         : "memory", "r8", "r9", "r10", "r11");
        errno = (int)-r;
    }
    return outcome(r == 0);
#else
    (void)x32;
    return strerror(ENOSYS);
#endif
}

static const char *table_of_32_bits(void)
{
    return other_table(false);
}

static const char *table_of_x32(void)
{
    return other_table(true);
}

static const char *enter_namespace(void)
{
    int fd = open(path_of("pid", "ns/net"), O_RDONLY);
    return outcome(fd >= 0 && setns(fd, 0) == 0);
}

/* chroot is allowed: with a folder kept open, `..` leads out of it, but never further than /. */
static const char *chroot_and_climb(void)
{
    int out = open("/", O_RDONLY | O_DIRECTORY);
    if (mkdir("/tmp/attack.root", 0700) < 0 || chroot("/tmp/attack.root") < 0 || fchdir(out) < 0)
        return strerror(errno);
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            return strerror(errno);
    if (chroot(".") < 0)
        return strerror(errno);
    rmdir("/tmp/attack.root");
    return outcome(access(value_of("file"), R_OK) == 0);
}

/* ---- processes outside ---- */

static const char *seize(const char *key)
{
    return outcome(ptrace(PTRACE_SEIZE, number_of(key), 0, 0) == 0);
}

static const char *ptrace_outside(void)
{
    return seize("pid");
}

static const char *signal_outside(void)
{
    return outcome(kill(number_of("pid"), 0) == 0);
}

static const char *memory_outside(void)
{
    return outcome(open(path_of("pid", "mem"), O_RDWR) >= 0);
}

static const char *score_outside(void)
{
    char text[32];
    int fd = open(path_of("pid", "oom_score_adj"), O_RDWR);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    return outcome(n > 0 && pwrite(fd, text, (size_t)n, 0) == n);
}

/* ---- the kernel's files ---- */

/* What is written is what was there; what [brackets] choose among choices. */
static const char *write_back(const char *path)
{
    char text[256];
    int fd = open(path, O_RDWR);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return strerror(errno);
    text[n] = 0;
    char *from = strchr(text, '['), *to = from ? strchr(from, ']') : NULL;
    const char *what = to ? from + 1 : text;
    size_t length = to ? (size_t)(to - from - 1) : (size_t)n;
    return outcome(pwrite(fd, what, length, 0) == (ssize_t)length);
}

static const char *write_proc_sys(void)
{
    return write_back("/proc/sys/vm/swappiness");
}

static const char *write_core_pattern(void)
{
    return write_back("/proc/sys/kernel/core_pattern");
}

static const char *write_sys(void)
{
    return write_back("/sys/kernel/mm/transparent_hugepage/enabled");
}

static const char *open_sysrq(void)
{
    struct stat st;
    int fd = open("/proc/sysrq-trigger", O_WRONLY); /* nothing is written */
    return outcome(fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode));
}

static const char *read_kernel_log(void)
{
    return outcome(syscall(SYS_syslog, 10 /* its size */, NULL, 0) >= 0);
}

/* ---- devices ---- */

static const char *open_device(mode_t kind, dev_t device)
{
    char path[64], sector[512];
    snprintf(path, sizeof path, "/tmp/attack.device.%d", (int)getpid());
    if (mknod(path, kind | 0600, device) < 0)
        return strerror(errno);
    int fd = open(path, O_RDONLY);
    const char *why = outcome(fd >= 0 && read(fd, sector, sizeof sector) == sizeof sector);
    unlink(path);
    return why;
}

static const char *device_disk(void)
{
    unsigned at[2] = {0, 0};
    sscanf(value_of("disk"), "%u:%u", &at[0], &at[1]);
    return open_device(S_IFBLK, makedev(at[0], at[1]));
}

static const char *device_zero(void)
{
    return open_device(S_IFCHR, makedev(1, 5));
}

static const char *push_to_terminal(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 || setsid() < 0)
        return strerror(errno);
    int terminal = open(ptsname(master), O_RDWR); /* becomes the controlling one */
    return outcome(terminal >= 0 && ioctl(terminal, TIOCSTI, "x") == 0);
}

/* ---- privilege ---- */

static bool copy_self(const char *path)
{
    char block[65536];
    int from = open(self, O_RDONLY), to = open(path, O_WRONLY | O_CREAT | O_EXCL, 0700);
    ssize_t n;
    while (from >= 0 && to >= 0 && (n = read(from, block, sizeof block)) > 0)
        if (write(to, block, (size_t)n) != n)
            return false;
    bool copied = from >= 0 && to >= 0 && fchmod(to, 04755) == 0;
    close(from);
    close(to);
    return copied;
}

static void run_as_somebody(const char *path)
{
    gid_t gid = (gid_t)number_of("uid");
    if (setgid(gid) < 0 || setuid((uid_t)gid) < 0)
        _exit(3);
    execl(path, path, "euid", (char *)NULL);
    _exit(4);
}

static const char *setuid_program(void)
{
    char path[64];
    int status = -1;
    snprintf(path, sizeof path, "/tmp/attack.setuid.%d", (int)getpid());
    if (!copy_self(path))
        return strerror(errno);
    pid_t pid = fork();
    if (pid == 0)
        run_as_somebody(path);
    waitpid(pid, &status, 0);
    unlink(path);
    return status == 0 ? NULL : "no privilege came of it";
}

static const char *raise_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NICE, &limit);
    limit.rlim_max += limit.rlim_max < RLIM_INFINITY;
    return outcome(setrlimit(RLIMIT_NICE, &limit) == 0);
}

/* By nothing. */
static const char *set_clock(void)
{
    struct timex step = {.modes = ADJ_SETOFFSET};
    return outcome(adjtimex(&step) >= 0);
}

static const char *real_time_priority(void)
{
    return outcome(setpriority(PRIO_PROCESS, 0, -5) == 0);
}

/* ---- the kernel's darker corners ---- */

static const char *key_add(void)
{
    return outcome(syscall(SYS_add_key, "user", "attack", "x", 1, KEY_SPEC_PROCESS_KEYRING) >= 0);
}

static const char *key_session(void)
{
    return outcome(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 1) >= 0);
}

static const char *fault_handler(void)
{
    return outcome(syscall(SYS_userfaultfd, 0) >= 0);
}

static const char *ring(void)
{
    struct io_uring_params params = {0};
    return outcome(syscall(SYS_io_uring_setup, 1, &params) >= 0);
}

static const char *bpf_map(void)
{
    union bpf_attr attr = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    return outcome(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr) >= 0);
}

static const char *perf_event(void)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr};
    return outcome(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0) >= 0);
}

static const char *watch_files(void)
{
    return outcome(syscall(SYS_fanotify_init, 0, O_RDONLY) >= 0);
}

/* Permission is checked first: another complaint means that it was there. */
static const char *load_module(void)
{
    return outcome(syscall(SYS_finit_module, -1, "", 0) >= 0 || errno == EBADF);
}

static const char *restart_machine(void)
{
    return outcome(syscall(SYS_reboot, 0, 0, 0, NULL) >= 0 || errno == EINVAL); /* no magic */
}

/* ---- control groups ---- */

static const char *in_cgroups(const char *(*attempt)(const char *group))
{
    const char *why = "there is no control group in sight";
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/pids",
                                        "/sys/fs/cgroup/unified"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        if (access(roots[i], F_OK) == 0 && !(why = attempt(roots[i])))
            return NULL;
    return why;
}

static const char *mount_cgroup_version(const char *type, const char *options)
{
    if (mount("attack", "/mnt", type, 0, options) < 0)
        return strerror(errno);
    return outcome(umount("/mnt") == 0);
}

static const char *cgroup_mount(void)
{
    const char *why = mount_cgroup_version("cgroup2", NULL);
    return why ? mount_cgroup_version("cgroup", "pids") : NULL;
}

static const char *make_group(const char *root)
{
    char path[128];
    snprintf(path, sizeof path, "%s/attack.%d", root, (int)getpid());
    if (mkdir(path, 0700) < 0)
        return strerror(errno);
    return outcome(access(path, F_OK) == 0 && rmdir(path) == 0 && strstr(path, "/sys/fs/cgroup/"));
}

static const char *cgroup_make(void)
{
    return in_cgroups(make_group);
}

static const char *open_agent(const char *root)
{
    char path[128];
    snprintf(path, sizeof path, "%s/release_agent", root);
    return outcome(open(path, O_WRONLY) >= 0); /* nothing is written */
}

static const char *cgroup_release_agent(void)
{
    return in_cgroups(open_agent);
}

/* ---- files outside ---- */

static bool holds_token(int fd)
{
    char text[256] = {0};
    const char *token = value_of("token");
    return fd >= 0 && pread(fd, text, sizeof text - 1, 0) > 0 && strstr(text, token);
}

static const char *file_by_path(void)
{
    return outcome(holds_token(open(value_of("file"), O_RDONLY)));
}

static const char *file_by_dots(void)
{
    char path[TEXT_MAX];
    snprintf(path, sizeof path, "/../../../../../../../../../..%s", value_of("file"));
    return outcome(holds_token(open(path, O_RDONLY)));
}

/* Every process in sight: its root, its working folder. */
static const char *file_by_proc(void)
{
    DIR *proc = opendir("/proc");
    for (const struct dirent *e; proc && (e = readdir(proc));) {
        static const char *const ways[] = {"root", "cwd/../../../../../../../.."};
        for (size_t i = 0; i < 2; i++) {
            char path[TEXT_MAX + 512];
            snprintf(path, sizeof path, "/proc/%s/%s%s", e->d_name, ways[i], value_of("file"));
            if (holds_token(open(path, O_RDONLY)))
                return NULL;
        }
    }
    return "no process leads there";
}

static bool leads_out(int process, const char *fd)
{
    struct stat st;
    if (fstatat(process, fd, &st, 0) < 0)
        return false;
    if (S_ISREG(st.st_mode))
        return holds_token(openat(process, fd, O_RDONLY | O_NONBLOCK));
    int folder = S_ISDIR(st.st_mode) ? openat(process, fd, O_RDONLY | O_DIRECTORY) : -1;
    char path[TEXT_MAX];
    snprintf(path, sizeof path, "../../../../../../../..%s", value_of("file"));
    return folder >= 0 && holds_token(openat(folder, path, O_RDONLY));
}

/* Descriptors that somebody in sight forgot to close. */
static const char *file_by_leaked_fd(void)
{
    DIR *proc = opendir("/proc");
    for (const struct dirent *e; proc && (e = readdir(proc));) {
        char path[512];
        snprintf(path, sizeof path, "/proc/%s/fd", e->d_name);
        DIR *fds = opendir(path);
        for (const struct dirent *fd; fds && (fd = readdir(fds));)
            if (leads_out(dirfd(fds), fd->d_name))
                return NULL;
        if (fds)
            closedir(fds);
    }
    return "no descriptor leads there";
}

static struct file_handle *new_handle(void)
{
    struct file_handle *h = calloc(1, sizeof *h + MAX_HANDLE_SZ);
    h->handle_bytes = MAX_HANDLE_SZ;
    return h;
}

static int print_handle(const char *path)
{
    struct file_handle *h = new_handle();
    int mount_id;
    if (name_to_handle_at(AT_FDCWD, path, h, &mount_id, 0) < 0)
        return 1;
    printf("%d", h->handle_type);
    for (unsigned i = 0; i < h->handle_bytes; i++)
        printf(".%02x", h->f_handle[i]);
    printf("\n");
    return 0;
}

/* /usr is a mount of the host's file system, which numbers all files of the host. */
static const char *file_handle(void)
{
    struct file_handle *h = new_handle();
    char *p;
    h->handle_type = (int)strtol(value_of("handle"), &p, 10);
    for (h->handle_bytes = 0; *p == '.' && h->handle_bytes < MAX_HANDLE_SZ;)
        h->f_handle[h->handle_bytes++] = (unsigned char)strtol(p + 1, &p, 16);
    int at = open("/usr", O_RDONLY | O_DIRECTORY);
    return outcome(open_by_handle_at(at, h, O_RDONLY) >= 0);
}

/* ---- sockets ---- */

static const char *connect_unix(const char *name, bool abstract)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path + abstract, sizeof to.sun_path - 1, "%s", name);
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return outcome(fd >= 0 && connect(fd, (struct sockaddr *)&to, n) == 0);
}

static const char *unix_by_path(void)
{
    return connect_unix(value_of("unix"), false);
}

static const char *unix_abstract(void)
{
    return connect_unix(value_of("abstract"), true);
}

/* Whether the kernel lists them here. */
static const char *unix_listed(void)
{
    char line[512];
    FILE *f = fopen("/proc/net/unix", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *path = strchr(line, '/');
        line[strcspn(line, "\n")] = 0;
        if (path && (strcmp(path, value_of("unix")) == 0 || strcmp(path, value_of("agent")) == 0))
            return NULL;
    }
    return "no socket of the host is listed";
}

static const char *open_socket(int family, int type, int protocol)
{
    return outcome(socket(family, type, protocol) >= 0);
}

static const char *socket_vm(void)
{
    return open_socket(AF_VSOCK, SOCK_STREAM, 0);
}

static const char *socket_packet(void)
{
    return open_socket(AF_PACKET, SOCK_RAW, 0);
}

static const char *socket_raw(void)
{
    return open_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
}

static struct sockaddr_in host_loopback(const char *port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)number_of(port)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static const char *tcp_to_host(void)
{
    struct sockaddr_in to = host_loopback("tcp");
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return outcome(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
}

/* Succeeds when the answer comes. */
static const char *udp_to_host(void)
{
    char answer[16];
    struct sockaddr_in to = host_loopback("udp");
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return outcome(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
                   send(fd, "x", 1, 0) == 1 && recv(fd, answer, sizeof answer, 0) > 0);
}

/* A look at the routes: nothing is sent. */
static const char *route_outside(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    to.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, for documentation */
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return outcome(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
}

/* As they were. */
static const char *set_interface(void)
{
    struct ifreq lo = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return outcome(fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &lo) == 0 &&
                   ioctl(fd, SIOCSIFFLAGS, &lo) == 0);
}

/* ---- pi-hands: its listening socket speaks for the sandbox ---- */

static const char *hands_ptrace(void)
{
    return seize("hands");
}

static const char *hands_memory(void)
{
    return outcome(open(path_of("hands", "mem"), O_RDWR) >= 0);
}

/* A program that runs is only safe for as long as it does. */
static const char *hands_program(void)
{
    return outcome(open(path_of("hands", "exe"), O_RDWR) >= 0 || errno == ETXTBSY);
}

static const char *hands_socket(void)
{
    int process = (int)syscall(SYS_pidfd_open, number_of("hands"), 0);
    return outcome(process >= 0 && syscall(SYS_pidfd_getfd, process, 3, 0) >= 0);
}

static const char *hands_foreign_memory(void)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {0, 1}; /* EFAULT: allowed, though nothing is there */
    ssize_t n = syscall(SYS_process_vm_readv, number_of("hands"), &here, 1, &there, 1, 0);
    return outcome(n >= 0 || errno == EFAULT);
}

static const char *hands_inherited(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        int listening = 0;
        socklen_t n = sizeof listening;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) == 0 && listening)
            return NULL;
    }
    return "no listening socket was inherited";
}

static const char *hands_limits(void)
{
    struct rlimit limit;
    pid_t pid = number_of("hands");
    return outcome(prlimit(pid, RLIMIT_NPROC, NULL, &limit) == 0 &&
                   prlimit(pid, RLIMIT_NPROC, &limit, NULL) == 0);
}

/* ---- exhaustion: bounded, and undone by the end of the process ---- */

static const char *many_processes(void)
{
    int gate[2];
    if (pipe(gate) < 0)
        return strerror(errno);
    const char *why = NULL;
    for (int i = 0; i < FORKS && !why; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            char c;
            close(gate[1]);
            _exit(read(gate[0], &c, 1) != 0); /* ends with the parent */
        }
        why = outcome(pid > 0);
    }
    close(gate[1]);
    while (wait(NULL) > 0)
        continue;
    return why;
}

static const char *much_memory(void)
{
    size_t n = (size_t)HOG_MIB << 20;
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return strerror(errno);
    for (size_t i = 0; i < n; i += 4096)
        p[i] = 1;
    return NULL;
}

static const char *fill(const char *folder, size_t mib)
{
    static char block[1 << 20];
    char path[128];
    memset(block, 1, sizeof block);
    snprintf(path, sizeof path, "%s/attack.%d", folder, (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    unlink(path);
    const char *why = outcome(fd >= 0);
    for (size_t i = 0; i < mib && !why; i++)
        why = outcome(write(fd, block, sizeof block) == sizeof block);
    return why;
}

static const char *fill_shm(void)
{
    return fill("/dev/shm", SHM_MIB);
}

static const char *fill_dev(void)
{
    return fill("/dev", 1);
}

/* Where it stands. */
static const char *fill_disk(void)
{
    return fill(".", DISK_MIB);
}

/* Small files take what counts files. */
static const char *many_files(void)
{
    char folder[64], name[96];
    snprintf(folder, sizeof folder, "attack.%d", (int)getpid());
    const char *why = outcome(mkdir(folder, 0700) == 0);
    int n = 0;
    for (; n < FILES && !why; n++) {
        snprintf(name, sizeof name, "%s/%d", folder, n);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
        why = outcome(fd >= 0);
        close(fd);
    }
    while (n-- > 0) {
        snprintf(name, sizeof name, "%s/%d", folder, n);
        unlink(name);
    }
    rmdir(folder);
    return why;
}

/* ---- the program ---- */

static const struct attempt {
    const char *name;
    const char *(*run)(void);
    bool exhausts; /* not part of "all" */
} attempts[] = {
    {"mount", mount_tmpfs, false},
    {"mount_new_api", mount_new_api, false},
    {"mount_clone", mount_clone, false},
    {"unshare_user", unshare_user, false},
    {"unshare_mount", unshare_mount, false},
    {"clone_user", clone_user, false},
    {"clone3_user", clone3_user, false},
    {"table_of_32_bits", table_of_32_bits, false},
    {"table_of_x32", table_of_x32, false},
    {"enter_namespace", enter_namespace, false},
    {"chroot_and_climb", chroot_and_climb, false},
    {"ptrace", ptrace_outside, false},
    {"signal", signal_outside, false},
    {"process_memory", memory_outside, false},
    {"process_score", score_outside, false},
    {"proc_sys", write_proc_sys, false},
    {"core_pattern", write_core_pattern, false},
    {"sys", write_sys, false},
    {"sysrq", open_sysrq, false},
    {"kernel_log", read_kernel_log, false},
    {"device_disk", device_disk, false},
    {"device_zero", device_zero, false},
    {"tiocsti", push_to_terminal, false},
    {"setuid_program", setuid_program, false},
    {"raise_limit", raise_limit, false},
    {"set_clock", set_clock, false},
    {"priority", real_time_priority, false},
    {"key_add", key_add, false},
    {"key_session", key_session, false},
    {"userfaultfd", fault_handler, false},
    {"io_uring", ring, false},
    {"bpf", bpf_map, false},
    {"perf_event", perf_event, false},
    {"watch_files", watch_files, false},
    {"load_module", load_module, false},
    {"restart_machine", restart_machine, false},
    {"cgroup_mount", cgroup_mount, false},
    {"cgroup_make", cgroup_make, false},
    {"cgroup_release_agent", cgroup_release_agent, false},
    {"file_by_path", file_by_path, false},
    {"file_by_dots", file_by_dots, false},
    {"file_by_proc", file_by_proc, false},
    {"file_by_leaked_fd", file_by_leaked_fd, false},
    {"file_handle", file_handle, false},
    {"unix_by_path", unix_by_path, false},
    {"unix_abstract", unix_abstract, false},
    {"unix_listed", unix_listed, false},
    {"socket_vm", socket_vm, false},
    {"socket_packet", socket_packet, false},
    {"socket_raw", socket_raw, false},
    {"tcp_to_host", tcp_to_host, false},
    {"udp_to_host", udp_to_host, false},
    {"route_outside", route_outside, false},
    {"set_interface", set_interface, false},
    {"hands_ptrace", hands_ptrace, false},
    {"hands_memory", hands_memory, false},
    {"hands_program", hands_program, false},
    {"hands_socket", hands_socket, false},
    {"hands_foreign_memory", hands_foreign_memory, false},
    {"hands_inherited", hands_inherited, false},
    {"hands_limits", hands_limits, false},
    {"many_processes", many_processes, true},
    {"much_memory", much_memory, true},
    {"fill_shm", fill_shm, true},
    {"fill_dev", fill_dev, true},
    {"fill_disk", fill_disk, true},
    {"many_files", many_files, true},
};

static void report(const char *name, bool succeeded, const char *detail)
{
    printf("{\"name\":\"%s\",\"succeeded\":%s,\"detail\":\"%s\"}\n", name,
           succeeded ? "true" : "false", detail);
    fflush(stdout);
}

/* The child says 's', or why not; its death says nothing. */
static void run_attempt(const struct attempt *a)
{
    int ends[2], status = 0;
    char said[TEXT_MAX] = {0};
    if (pipe(ends) < 0)
        _exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        alarm(ATTEMPT_SECONDS);
        const char *why = a->run();
        if (write(ends[1], why ? why : "s", why ? strlen(why) : 1) < 0)
            _exit(1);
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = pid > 0 ? read(ends[0], said, sizeof said - 1) : -1;
    close(ends[0]);
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (n <= 0)
        snprintf(said, sizeof said, "it ended with status %d", status);
    report(a->name, strcmp(said, "s") == 0, strcmp(said, "s") == 0 ? "" : said);
}

static bool wanted(const struct attempt *a)
{
    for (char **w = arguments; *w; w++)
        if (strcmp(*w, a->name) == 0 || (strcmp(*w, "all") == 0 && !a->exhausts))
            return true;
    return false;
}

int main(int argc, char **argv)
{
    arguments = argv + 1;
    if (argc == 2 && strcmp(argv[1], "euid") == 0)
        return geteuid() != 0;
    if (argc == 3 && strcmp(argv[1], "handle") == 0)
        return print_handle(argv[2]);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return 1;
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++)
        if (wanted(&attempts[i]))
            run_attempt(&attempts[i]);
    return 0;
}
