/* src/parent: the supervisor with test roles. This program is re-executed by the parent under test
   as control, broker, host and maker; what they do is at the top. Each role writes lines into a
   fifo (its --report argument), and the test waits for the lines it expects. */
#include "parent/parent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "parent/link.h"
#include "parent/listen.h"
#include "parent/maker.h"
#include "parent/roles.h"
#include "parent/vault_key.h"

#include <cmocka.h>
#undef fail /* ours */

#define WAIT_MS 20000
#define TENANT "tenant_01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define SESSION "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV"

/* Test roles */

static int report_fd = -1;

static void report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void report(const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    line[n++] = '\n';
    if (write(report_fd, line, (size_t)n) != n)
        _exit(3);
}

static const char *word_after(int argc, char **argv, const char *option)
{
    for (int i = 0; i + 1 < argc; i++) {
        if (strcmp(argv[i], option) == 0)
            return argv[i + 1];
    }
    return "";
}

struct role_state {
    const char *name;
    struct parent_link *link;
    int to_broker;
};

static void on_note(void *arg, const struct parent_message *m, int fds[FD_PASS_MAX])
{
    struct role_state *s = arg;
    char byte = '?';
    switch (m->verb) {
    case PARENT_NOTE_CONFIG:
        report("%s config data=%s key=%d", s->name, m->config.data_dir, m->config.control_key[0]);
        break;
    case PARENT_NOTE_LISTEN:
        report("%s listen %d", s->name, fds[0] >= 0);
        break;
    case PARENT_NOTE_CREDENTIAL:
        report("%s credential %s", s->name, m->text);
        break;
    case PARENT_NOTE_LINK: /* control says hello to the broker over it */
        if (strcmp(s->name, "control") == 0)
            report("control link %d", fd_write_full(fds[0], "x", 1));
        else if (fd_read_full(fds[0], &byte, 1) == 0)
            report("broker link 0 %c", byte);
        break;
    case PARENT_NOTE_GATEWAY:
        report("%s gateway host=%u tenant=%s socket=%d", s->name, m->host.id, m->host.tenant,
               fds[0] >= 0);
        break;
    case PARENT_NOTE_HOST_EXIT:
        report("%s host-exit %u", s->name, m->host.id);
        break;
    case PARENT_NOTE_STOP:
        report("%s stop", s->name);
        _exit(0);
    default:
        report("%s verb %u", s->name, m->verb);
    }
    for (size_t i = 0; i < FD_PASS_MAX; i++)
        fd_close(&fds[i]);
}

/* What a test tells control to do comes as lines on the fifo --orders. */
static void start_host(struct role_state *s, const char *tenant)
{
    struct parent_message m = {.verb = PARENT_START_HOST};
    char greeting[6] = "";
    int fd = -1;
    snprintf(m.host.tenant, sizeof m.host.tenant, "%s", tenant);
    err e = parent_call(s->link, &m, &fd);
    if (!e)
        e = fd_read_full(fd, greeting, 5);
    report("host %u status=%d says=%s", m.host.id, e, greeting);
}

static void sandbox_verb(struct role_state *s, uint32_t verb, const char *id)
{
    struct parent_message m = {.verb = verb};
    snprintf(m.sandbox.spec.id, sizeof m.sandbox.spec.id, "%s", id);
    snprintf(m.sandbox.spec.tenant, sizeof m.sandbox.spec.tenant, TENANT);
    snprintf(m.sandbox.spec.image, sizeof m.sandbox.spec.image, "host");
    err e = parent_call(s->link, &m, NULL);
    report("sandbox verb=%u status=%d %s", verb, e,
           e                              ? err_code_of(e)
           : verb == PARENT_SANDBOX_START ? m.sandbox.socket
                                          : "");
}

static void bind_host(struct role_state *s, uint32_t id)
{
    struct parent_message m = {.verb = PARENT_BIND_HOST, .host.id = id};
    snprintf(m.host.tenant, sizeof m.host.tenant, TENANT);
    report("bound status=%d", parent_call(s->link, &m, NULL));
}

static void obey(struct role_state *s, char *order)
{
    char *argument = strchr(order, ' ');
    if (argument)
        *argument++ = 0;
    if (strcmp(order, "start-host") == 0)
        start_host(s, argument ? argument : "");
    else if (strcmp(order, "bind-host") == 0)
        bind_host(s, 1);
    else if (strcmp(order, "create") == 0)
        sandbox_verb(s, PARENT_SANDBOX_CREATE, argument);
    else if (strcmp(order, "start") == 0)
        sandbox_verb(s, PARENT_SANDBOX_START, argument);
    else if (strcmp(order, "destroy") == 0)
        sandbox_verb(s, PARENT_SANDBOX_DESTROY, argument);
    else if (strcmp(order, "open-credential") == 0) { /* the broker's right, not control's */
        struct parent_message m = {.verb = PARENT_OPEN_CREDENTIAL};
        parent_call(s->link, &m, NULL);
    }
}

static int test_control(int argc, char **argv)
{
    static struct role_state s = {.name = "control"};
    if (strcmp(word_after(argc, argv, "--fault"), "control") == 0)
        return 7;
    s.link = parent_link_open(PARENT_FD, on_note, &s);
    parent_hello(s.link);
    report("control up pid=%d", getpid());
    FILE *orders = fopen(word_after(argc, argv, "--orders"), "re");
    char line[256];
    while (orders) {
        while (fgets(line, sizeof line, orders)) {
            line[strcspn(line, "\n")] = 0;
            obey(&s, line);
        }
        pause();
    }
    return 1;
}

static _Noreturn void test_broker(void)
{
    static struct role_state s = {.name = "broker"};
    s.link = parent_link_open(PARENT_FD, on_note, &s);
    report("broker up pid=%d", getpid());
    parent_hello(s.link);
    for (;;)
        pause();
}

static int test_host(int argc, char **argv)
{
    bool socket = access(word_after(argc, argv, "--gateway"), W_OK) == 0;
    report("host up gateway=%d uid=%d", socket, getuid() == 0 || geteuid() == getuid());
    if (fd_write_full(3, "hello", 5))
        return 1;
    char byte;
    return fd_read_full(3, &byte, 1) ? 0 : 1; /* until control is gone */
}

static int test_maker(void)
{
    struct maker_request *r = mem_alloc(sizeof *r);
    struct parent_message *m = mem_alloc(sizeof *m);
    int fds[FD_PASS_MAX];
    size_t n;
    if (fd_recv(3, r, sizeof *r, &n, fds)) { /* a spare that was not needed */
        mem_free(r);
        mem_free(m);
        return 0;
    }
    report("maker verb=%u base=%u folder=%d", r->verb, r->uid_base, access(r->dir, F_OK) == 0);
    if (r->verb == PARENT_SANDBOX_STATS)
        abort();
    fd_send(3, m, sizeof *m, NULL, 0);
    mem_free(r);
    mem_free(m);
    return 0;
}

static int run_test_role(int argc, char **argv)
{
    report_fd = open(word_after(argc, argv, "--report"), O_WRONLY | O_CLOEXEC);
    log_init("test", LOG_TEXT, LOG_ERROR);
    if (strcmp(argv[2], "control") == 0)
        return test_control(argc, argv);
    if (strcmp(argv[2], "broker") == 0)
        test_broker();
    return strcmp(argv[2], "host") == 0 ? test_host(argc, argv) : test_maker();
}

/* The fixture: one parent_run in a child of the test */

struct fixture {
    char root[64], report[80], orders[80];
    int report_fd, orders_fd;
    struct data_dir data;
    struct vault_key *key;
    struct parent_options o;
    const char *args[7];
    pid_t pid;
    char lines[16384]; /* not matched yet */
    size_t n;
};

static void ready(void *arg)
{
    struct fixture *f = arg;
    report_fd = f->report_fd;
    report("ready");
}

static void make_fifo(const char *path, int *out_fd)
{
    assert_int_equal(mkfifo(path, 0666), 0);
    assert_int_equal(chmod(path, 0666), 0);
    *out_fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(*out_fd >= 0);
}

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    struct parent_options *o = &f->o;
    char path[128];
    snprintf(f->root, sizeof f->root, "/tmp/pm-parent-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    assert_int_equal(chmod(f->root, 0755), 0);
    snprintf(f->report, sizeof f->report, "%s/report", f->root);
    snprintf(f->orders, sizeof f->orders, "%s/orders", f->root);
    make_fifo(f->report, &f->report_fd);
    make_fifo(f->orders, &f->orders_fd);
    o->uid_base = 64000;
    o->separate = roles_can_separate(o->uid_base);
    snprintf(path, sizeof path, "%s/data", f->root);
    assert_int_equal(data_open(path, o->separate ? o->uid_base : geteuid(), &f->data), 0);
    snprintf(path, sizeof path, "%s/data/keys/vault.key", f->root);
    assert_int_equal(vault_key_open(path, &f->key), 0);
    assert_int_equal(listen_open("127.0.0.1:0", false, false, &o->listen_fd, o->config.listen_url,
                                 sizeof o->config.listen_url),
                     0);
    const char *args[] = {"--report", f->report, "--orders", f->orders};
    memcpy(f->args, args, sizeof args);
    o->data = &f->data;
    o->runtime_dir = o->harness_dir = f->root;
    o->key = f->key;
    o->tls_cert_fd = o->tls_key_fd = -1;
    o->role_args = f->args;
    o->config.control_key[0] = 42;
    snprintf(o->config.tenant, sizeof o->config.tenant, TENANT);
    o->ready = ready;
    o->arg = f;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char command[128];
    if (f->pid > 0) {
        kill(f->pid, SIGKILL);
        waitpid(f->pid, NULL, 0);
    }
    snprintf(command, sizeof command, "rm -rf %s", f->root);
    assert_int_equal(system(command), 0);
    close(f->report_fd);
    close(f->orders_fd);
    close(f->o.listen_fd);
    vault_key_free(f->key);
    data_close(&f->data);
    mem_free(f);
    return 0;
}

/* parent_run in a child; its exit status is its error code. */
static void start(struct fixture *f)
{
    f->pid = fork();
    assert_true(f->pid >= 0);
    if (f->pid == 0) {
        log_init("parent", LOG_TEXT, LOG_ERROR);
        _exit(parent_run(&f->o));
    }
}

/* Takes the first reported line that begins with `prefix` (and everything before it stays for
 * others). */
static bool take_line(struct fixture *f, const char *prefix, char *out, size_t cap)
{
    for (char *line = f->lines; line < f->lines + f->n;) {
        char *end = memchr(line, '\n', (size_t)(f->lines + f->n - line));
        if (end == NULL)
            return false;
        if (strncmp(line, prefix, strlen(prefix)) == 0) {
            snprintf(out, cap, "%.*s", (int)(end - line), line);
            memmove(line, end + 1, (size_t)(f->lines + f->n - end - 1));
            f->n -= (size_t)(end + 1 - line);
            return true;
        }
        line = end + 1;
    }
    return false;
}

static char *expect(struct fixture *f, const char *prefix)
{
    static char line[512];
    while (!take_line(f, prefix, line, sizeof line)) {
        struct pollfd fd = {.fd = f->report_fd, .events = POLLIN};
        if (poll(&fd, 1, WAIT_MS) <= 0) {
            print_error("no line \"%s\" within %d ms; others:\n%.*s\n", prefix, WAIT_MS, (int)f->n,
                        f->lines);
            assert_true(false);
        }
        ssize_t n = read(f->report_fd, f->lines + f->n, sizeof f->lines - f->n);
        assert_true(n > 0);
        f->n += (size_t)n;
    }
    return line;
}

static void order(struct fixture *f, const char *text)
{
    char line[256];
    int n = snprintf(line, sizeof line, "%s\n", text);
    assert_int_equal(write(f->orders_fd, line, (size_t)n), n);
}

static pid_t pid_of(const char *line)
{
    return (pid_t)atoi(strstr(line, "pid=") + 4);
}

static int end_of(struct fixture *f)
{
    int status = 0;
    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    f->pid = 0;
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Tests */

static void broker_starts_first_and_each_role_gets_its_notes(void **state)
{
    struct fixture *f = *state;
    setenv("ANTHROPIC_API_KEY", "sk-test", 1);
    start(f);
    unsetenv("ANTHROPIC_API_KEY");
    expect(f, "broker up");
    assert_string_equal(expect(f, "broker config"), "broker config data= key=0");
    char *config = expect(f, "control config");
    assert_non_null(strstr(config, f->o.separate ? "data=/run/pi-managed/data key=42" : "key=42"));
    expect(f, "control listen 1");
    expect(f, "control credential anthropic");
    expect(f, "control link 0");
    expect(f, "broker link 0 x");
    expect(f, "ready");
}

static void a_killed_broker_is_back_at_once_with_a_new_link(void **state)
{
    struct fixture *f = *state;
    start(f);
    pid_t broker = pid_of(expect(f, "broker up"));
    expect(f, "broker link 0 x");
    expect(f, "ready");
    order(f, "start-host " TENANT);
    expect(f, "broker gateway host=1 tenant=" TENANT " socket=1");
    int64_t before = clock_monotonic_ms(clock_real());
    kill(broker, SIGKILL);
    expect(f, "broker up");
    int64_t took = clock_monotonic_ms(clock_real()) - before;
    expect(f, "broker gateway host=1 tenant=" TENANT " socket=1");
    expect(f, "broker link 0 x");
    assert_in_range(took, 0, 2000); /* 200 ms on an idle machine */
}

static void a_killed_control_is_back_with_socket_and_link_and_its_hosts_are_ended(void **state)
{
    struct fixture *f = *state;
    start(f);
    pid_t control = pid_of(expect(f, "control up"));
    expect(f, "control listen 1");
    expect(f, "broker link 0 x");
    expect(f, "ready");
    order(f, "start-host " TENANT);
    expect(f, "host 1 status=0 says=hello");
    kill(control, SIGKILL);
    expect(f, "control up");
    expect(f, "control listen 1");
    expect(f, "broker link 0 x");
    expect(f, "broker host-exit 1");
}

static void a_host_reaches_its_gateway_and_its_control(void **state)
{
    struct fixture *f = *state;
    start(f);
    expect(f, "ready");
    order(f, "start-host " TENANT);
    expect(f, "host up gateway=1");
    expect(f, "host 1 status=0 says=hello");
    order(f, "start-host nobody");
    char *line = expect(f, "host 0 ");
    assert_non_null(strstr(line, "status=1"));
}

static void a_spare_host_gets_its_tenant_once(void **state)
{
    struct fixture *f = *state;
    start(f);
    expect(f, "ready");
    order(f, "start-host ");
    expect(f, "broker gateway host=1 tenant= socket=1");
    expect(f, "host 1 status=0");
    order(f, "bind-host");
    expect(f, "broker gateway host=1 tenant=" TENANT " socket=0");
    expect(f, "bound status=0");
    order(f, "bind-host");
    char wanted[32];
    snprintf(wanted, sizeof wanted, "bound status=%d", E_CONFLICT);
    expect(f, wanted);
}

static void sandbox_verbs_go_to_a_maker(void **state)
{
    struct fixture *f = *state;
    char wanted[160];
    start(f);
    expect(f, "ready");
    order(f, "create " SESSION);
    snprintf(wanted, sizeof wanted, "maker verb=%d base=%u folder=1", PARENT_SANDBOX_CREATE,
             f->o.separate ? 1000000u : 0);
    expect(f, wanted);
    snprintf(wanted, sizeof wanted, "sandbox verb=%d status=0", PARENT_SANDBOX_CREATE);
    expect(f, wanted);
    order(f, "start " SESSION);
    snprintf(wanted, sizeof wanted,
             "sandbox verb=%d status=0 %.64s/sandboxes/" SESSION "/agent.sock",
             PARENT_SANDBOX_START, f->o.separate ? "/run/pi-managed/data" : f->data.path);
    expect(f, wanted);
}

static void what_needs_no_maker_or_must_not_reach_one_gets_none(void **state)
{
    struct fixture *f = *state;
    char wanted[64];
    start(f);
    expect(f, "ready");
    order(f, "create ../../etc");
    snprintf(wanted, sizeof wanted, "sandbox verb=%d status=%d", PARENT_SANDBOX_CREATE, E_INVALID);
    expect(f, wanted);
    order(f, "start " SESSION);
    snprintf(wanted, sizeof wanted, "sandbox verb=%d status=%d", PARENT_SANDBOX_START, E_NOT_FOUND);
    expect(f, wanted);
    order(f, "destroy " SESSION); /* is done already */
    snprintf(wanted, sizeof wanted, "sandbox verb=%d status=0", PARENT_SANDBOX_DESTROY);
    expect(f, wanted);
    char line[64];
    assert_false(take_line(f, "maker", line, sizeof line));
}

static void a_role_that_asks_for_what_is_not_its_own_is_ended(void **state)
{
    struct fixture *f = *state;
    start(f);
    pid_t control = pid_of(expect(f, "control up"));
    expect(f, "ready");
    order(f, "open-credential");
    assert_int_not_equal(pid_of(expect(f, "control up")), control);
}

static void a_signal_stops_control_gracefully_and_then_all(void **state)
{
    struct fixture *f = *state;
    start(f);
    pid_t broker = pid_of(expect(f, "broker up"));
    expect(f, "ready");
    kill(f->pid, SIGTERM);
    expect(f, "control stop");
    assert_int_equal(end_of(f), 0);
    assert_int_equal(kill(broker, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static void a_role_that_dies_at_the_first_start_ends_the_service(void **state)
{
    struct fixture *f = *state;
    f->args[4] = "--fault";
    f->args[5] = "control";
    start(f);
    assert_int_equal(end_of(f), E_UNAVAILABLE);
}

static void a_stopped_service_takes_no_role_with_it_when_killed(void **state)
{
    struct fixture *f = *state;
    start(f);
    pid_t control = pid_of(expect(f, "control up"));
    expect(f, "ready");
    AUTO_FD gone = (int)syscall(434 /* pidfd_open */, control, 0);
    assert_true(gone >= 0);
    kill(f->pid, SIGKILL);
    waitpid(f->pid, NULL, 0);
    f->pid = 0;
    struct pollfd fd = {.fd = gone, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, WAIT_MS), 1); /* roles never outlive the parent */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "--role") == 0)
        return run_test_role(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(broker_starts_first_and_each_role_gets_its_notes),
        TEST(a_killed_broker_is_back_at_once_with_a_new_link),
        TEST(a_killed_control_is_back_with_socket_and_link_and_its_hosts_are_ended),
        TEST(a_host_reaches_its_gateway_and_its_control),
        TEST(a_spare_host_gets_its_tenant_once),
        TEST(sandbox_verbs_go_to_a_maker),
        TEST(what_needs_no_maker_or_must_not_reach_one_gets_none),
        TEST(a_role_that_asks_for_what_is_not_its_own_is_ended),
        TEST(a_signal_stops_control_gracefully_and_then_all),
        TEST(a_role_that_dies_at_the_first_start_ends_the_service),
        TEST(a_stopped_service_takes_no_role_with_it_when_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
