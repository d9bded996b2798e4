# The system calls of the poller: epoll, sockets, the clocks. Declarations and thin C, no logic.

from libc.stdint cimport uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
        uint64_t u64

    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data

    enum:
        EPOLL_CLOEXEC
        EPOLL_CTL_ADD
        EPOLL_CTL_MOD
        EPOLLIN
        EPOLLOUT
        EPOLLERR
        EPOLLHUP
        EPOLLRDHUP
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event *event)
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)


cdef extern from *:
    """
    #include <sys/types.h>
    #include <sys/socket.h>
    #include <sys/ioctl.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <arpa/inet.h>
    #include <fcntl.h>
    #include <string.h>

    /* accept4 and the peer's address as text; -1 and errno otherwise */
    static inline int iothub_accept(int fd, char *ip, int size, int *port) {
        struct sockaddr_storage address;
        socklen_t length = sizeof(address);
        int client = accept4(fd, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0)
            return -1;
        ip[0] = 0;
        *port = 0;
        if (address.ss_family == AF_INET) {
            struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
            inet_ntop(AF_INET, &v4->sin_addr, ip, size);
            *port = ntohs(v4->sin_port);
        } else if (address.ss_family == AF_INET6) {
            struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;
            inet_ntop(AF_INET6, &v6->sin6_addr, ip, size);
            *port = ntohs(v6->sin6_port);
        }
        return client;
    }

    /* accepted sockets inherit it */
    static inline void iothub_no_delay(int fd) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }

    static inline void iothub_reset_on_close(int fd) {
        struct linger now = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    }

    static inline int iothub_unread(int fd) {
        int count = 0;
        return ioctl(fd, FIONREAD, &count) < 0 ? 0 : count;
    }
    """
    int iothub_accept(int fd, char *ip, int size, int *port) nogil
    void iothub_no_delay(int fd) nogil
    void iothub_reset_on_close(int fd) nogil
    int iothub_unread(int fd) nogil
    ssize_t recv(int fd, void *buffer, size_t size, int flags) nogil
    ssize_t send(int fd, const void *buffer, size_t size, int flags) nogil
    int shutdown(int fd, int how) nogil
    int MSG_NOSIGNAL
    int SHUT_WR
    int O_CLOEXEC


cdef inline double monotonic() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9
